"""Everything needed to resume a run; random generators are never part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, shared_size
from fedtide.core.errors import SettingsError
from fedtide.federation.clocks.queue import Job, Queue
from fedtide.federation.parts import Parts
from fedtide.federation.saving.rows import StoredRows
from fedtide.settings.clock import Events

_OF_CLIENTS = ("seen", "counts", "written")  # vectors with an entry for each client


@dataclass
class RunState:
    """State between two rounds.

    Attributes:
        round, w, b: number of rounds done, global parameters [d] and floating buffers [q].
        server: the algorithm's server vectors [d].
        memory: the clients' vectors [N, d] by name: the algorithm's, what a kept local optimiser remembers (its count of
            steps is [N, 1]), and models kept for evaluation.
        seen: bool [N], clients that have a memory. counts: int64 [N], rounds each client took part in.
        written: int64 [N], number of the last round (from 1) in which a client's rows of ``memory`` were written; 0 for never.
        uplink: tensors that links and the aggregation rule keep at the server, by link, or combination of a round, and name.
        downlink: with a compressed one, the model ``w`` [d] that clients receive, and ``received`` int64 [N], number of the
            last round (from 1) of this session whose model each client has; 0 for none.
        extra: the algorithm's further tensors. initialiser: the initialiser's. events: with ``clock: events``, jobs under way.
        detector: with one, ``streams`` int64 [n] and ``losses`` float64 [n], what each stream of losses has seen since it
            began, in order, 16 bytes for every participant of a round at most; ``responses`` int64 [k], rounds that one came
            before; and with ``reset_model`` the session's first model, ``w`` [d] and ``b`` [q].
        totals: up to now: bytes, gradient rounds, seconds on this machine, simulated latency [s] and energy [J], and the
            sum of the rounds' normalised communication costs kappa.
    """

    round: int
    w: Tensor
    b: Tensor
    server: dict[str, Tensor]
    memory: dict[str, Tensor]
    seen: Tensor
    counts: Tensor
    written: Tensor
    uplink: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    downlink: dict[str, Tensor] = field(default_factory=dict)
    extra: dict[str, Tensor] = field(default_factory=dict)
    initialiser: dict[str, Tensor] = field(default_factory=dict)
    detector: dict[str, Tensor] = field(default_factory=dict)
    events: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, float] = field(
        default_factory=lambda: (
            dict.fromkeys(("bytes_up", "bytes_down", "gradient_rounds"), 0)
            | dict.fromkeys(("seconds", "latency", "energy", "kappa"), 0.0)
        )
    )

    def tensors(self) -> dict[str, Any]:
        """Plain containers of tensors and numbers, for saving; nothing is copied."""
        return vars(self).copy()

    @staticmethod
    def restore(values: dict[str, Any], device: torch.device, memory: torch.device) -> RunState:
        """State from :meth:`tensors`; clients' memories go to ``memory``, everything else to ``device``."""

        def place(value: Any, target: torch.device) -> Any:
            if isinstance(value, dict):
                return {key: place(item, target) for key, item in value.items()}
            return value.to(target) if isinstance(value, Tensor) else value

        return RunState(**{key: place(value, memory if key == "memory" else device) for key, value in values.items()})


def server_vectors(algorithm: Algorithm, like: Tensor) -> dict[str, Tensor]:
    """An algorithm's server vectors at the start, of the form of the parameters [d]."""
    return {vector.name: torch.full_like(like, vector.start) for vector in algorithm.server_vectors()}


def fresh_downlink(parts: Parts, w: Tensor) -> dict[str, Tensor]:
    """``RunState.downlink`` before anybody has received the model ``w``."""
    if parts.downlink is None:
        return {}
    return {"w": w.clone(), "received": torch.zeros(parts.timeline.num_clients, dtype=torch.int64)}


def initial_state(parts: Parts) -> RunState:
    """State before the first round."""
    clients, rows, state = parts.timeline.num_clients, parts.client_rows(parts.layout), _without_memory(parts)
    state.memory = {name: parts.memory.rows(clients, size, state.w.dtype) for name, size in rows.items()}
    return state


def _without_memory(parts: Parts) -> RunState:
    clients = parts.timeline.num_clients
    return RunState(
        round=0,
        w=parts.w0.clone(),
        b=parts.b0.clone(),
        server=server_vectors(parts.algorithm, parts.w0),
        memory={},
        seen=torch.zeros(clients, dtype=torch.bool),
        counts=torch.zeros(clients, dtype=torch.int64),
        written=torch.zeros(clients, dtype=torch.int64),
        uplink={link.settings.name: link.extra(shared_size(parts.algorithm, parts.layout)) for link in parts.links}
        | ({} if parts.rule is None else parts.rule.begin(parts.w0)),
        downlink=fresh_downlink(parts, parts.w0),
        extra=parts.algorithm.extra(),
        detector={} if parts.detector is None else _of_detector(parts),
    )


def _of_detector(parts: Parts, losses: int = 0, responses: int = 0) -> dict[str, Tensor]:
    """A detector's state after so many losses and responses; before the first round there are none."""
    chosen: Any = parts.settings.detector
    ids = torch.zeros(losses, dtype=torch.int64)
    first = {"w": parts.w0, "b": parts.b0} if chosen.response == "reset_model" else {}
    return {"streams": ids, "losses": ids.double(), "responses": ids.new_zeros(responses), **first}


def restored_state(parts: Parts, saved: dict[str, Any]) -> RunState:
    """State of this run from :meth:`RunState.tensors`, or as it comes from a file, every part where it belongs.

    In a run that grows it may be of fewer clients, the first ones: the others have never taken part.
    """
    first, memory = _without_memory(parts), saved.get("memory", {})
    forms = memory.forms if isinstance(memory, StoredRows) else memory
    if parts.settings.grows and 0 < _clients(saved) < len(first.counts):
        saved, forms = _with_newcomers(saved, forms, first)
    expected = _expected(first, parts.client_rows(parts.layout))
    if isinstance(parts.settings.clock, Events):
        expected |= _of_events(first, saved.get("events", {}))
    if parts.detector is not None:
        found = (saved.get("detector", {}).get(name) for name in ("losses", "responses"))
        lengths = [value.numel() if isinstance(value, Tensor) else 0 for value in found]
        expected |= _forms("detector", _of_detector(parts, *lengths))
    _refuse_other_shapes(expected, saved, forms)
    values = {"written": first.written, **saved, "memory": {}}
    state = RunState.restore(values, parts.hardware.device, torch.device("cpu"))
    if isinstance(memory, StoredRows):
        state.memory = {
            name: parts.memory.rows(form.shape[0], form.shape[1], form.dtype) for name, form in forms.items()
        }
        state.written[memory.write_into(state.memory)] = state.round
    else:
        state.memory = parts.memory.adopt(memory, len(first.seen))
    return state


def _clients(saved: dict[str, Any]) -> int:
    """Number of clients of a saved state, 0 if it does not tell."""
    counts = saved.get("counts")
    return len(counts) if isinstance(counts, Tensor) and counts.dim() == 1 else 0


def _with_newcomers(
    saved: dict[str, Any], forms: dict[str, Tensor], first: RunState
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A saved state of the first clients as one of all those of ``first``, the state before the first round.

    Also the forms of all clients' memories. What has a row for each client goes on as it starts; all else stays.
    """
    known, clients = _clients(saved), len(first.counts)

    def longer(value: Any, start: Any) -> Any:
        tensors = isinstance(value, Tensor) and isinstance(start, Tensor) and start.dim() > 0
        if not tensors or value.shape != (known, *start.shape[1:]) or len(start) != clients:
            return value
        return torch.cat([value, start[known:].to(value)])

    vectors = {name: longer(saved[name], getattr(first, name)) for name in _OF_CLIENTS if name in saved}
    for group in ("extra", "downlink"):
        start = getattr(first, group)
        vectors[group] = {name: longer(value, start.get(name)) for name, value in saved.get(group, {}).items()}
    of_all = {name: form.new_empty(clients, *form.shape[1:], device="meta") for name, form in forms.items()}
    return {**saved, **vectors}, of_all


def _expected(first: RunState, client_rows: dict[str, int]) -> dict[str, str]:
    """Types and shapes of a run's state; of tensors that grow, names alone."""
    expected = {name: _form(getattr(first, name)) for name in ("w", "b", "seen", "counts")}
    expected |= _forms("server", first.server)
    expected |= {f"memory.{name}": f"{first.w.dtype} [{len(first.seen)}, {size}]" for name, size in client_rows.items()}
    return (
        expected
        | {f"extra.{name}": "a tensor" for name in first.extra}
        | {
            name: form
            for group in ("uplink", "downlink")
            for name, form in _forms(group, getattr(first, group)).items()
        }
    )


def _refuse_other_shapes(expected: dict[str, str], saved: dict[str, Any], forms: dict[str, Tensor]) -> None:
    """Compare names, types and shapes of a saved state, ``forms`` of its memories, with those that it should have."""
    found = {name: _form(saved.get(name)) for name in ("w", "b", "seen", "counts")}
    found |= {f"server.{name}": _form(value) for name, value in saved.get("server", {}).items()}
    found |= {f"memory.{name}": _form(value) for name, value in forms.items()}
    found |= {f"extra.{name}": "a tensor" for name in saved.get("extra", {}) if f"extra.{name}" in expected}
    for name in ("uplink", "downlink", "events", "detector"):
        found |= _forms(name, saved.get(name, {}))
    for name in (*expected, *found):
        is_, should = found.get(name, "missing"), expected.get(name, "absent")
        if is_ != should:
            raise SettingsError(
                f"the saved state after round {saved.get('round')} is not of this run: {name} is {is_}, should be {should}; "
                "delete the run's folder to start the run again"
            )


def _of_events(first: RunState, events: dict[str, Any]) -> dict[str, str]:
    """What the jobs under way should be like, whose number is that of the rows of ``running``."""
    rows, number = events.get("running"), f"{torch.int64} [{{}}]".format
    jobs = rows.shape[0] if isinstance(rows, Tensor) and rows.dim() == 2 and rows.shape[1] == len(Job._fields) else 0
    versions = {job.version for job in Queue.restore(events).running.values()} if jobs else set[int]()
    lengths = {name: len(events.get(name, ())) for name in ("present", "line", "arrived")}
    return {
        "events.running": number(f"{jobs}, {len(Job._fields)}"),
        "events.joules": f"{torch.float64} [{jobs}]",
        **{f"events.{name}": number(length) for name, length in lengths.items()},
        **{f"events.w.{version}": _form(first.w) for version in versions},
        **{f"events.b.{version}": _form(first.b) for version in versions},
    }


def _forms(name: str, value: Any) -> dict[str, str]:
    """Types and shapes of the tensors in nested mappings, with dotted names."""
    if isinstance(value, dict):
        return {long: form for key, item in value.items() for long, form in _forms(f"{name}.{key}", item).items()}
    return {name: _form(value)} if isinstance(value, Tensor) else {}


def _form(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else "no tensor"
