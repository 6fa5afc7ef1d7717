"""Everything needed to resume a run; random generators are never part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.federation.clocks.queue import Job, Queue
from fedtide.federation.parts import Parts
from fedtide.federation.saving.rows import StoredRows
from fedtide.settings.clock import Events


@dataclass
class RunState:
    """State between two rounds.

    Attributes:
        round, w, b: number of rounds done, global parameters [d] and floating buffers [q].
        server: the algorithm's server vectors [d].
        memory: the clients' vectors [N, d] by name: the algorithm's, what a kept local optimiser remembers (its count of
            steps is [N, 1]), ``latest`` models where they are evaluated.
        seen: bool [N], clients that have a memory. counts: int64 [N], rounds each client took part in.
        written: int64 [N], number of the last round (from 1) in which a client's rows of ``memory`` were written; 0 for never.
        uplink: tensors that links keep at the server, by link and name.
        extra: the algorithm's further tensors. initialiser: the initialiser's. events: with ``clock: events``, jobs under way.
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
    extra: dict[str, Tensor] = field(default_factory=dict)
    initialiser: dict[str, Tensor] = field(default_factory=dict)
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


def server_vectors(parts: Parts) -> dict[str, Tensor]:
    """The algorithm's server vectors [d] at the start."""
    return {vector.name: torch.full_like(parts.w0, vector.start) for vector in parts.algorithm.server_vectors()}


def initial_state(parts: Parts) -> RunState:
    """State before the first round."""
    clients = parts.timeline.num_clients
    return RunState(
        round=0,
        w=parts.w0.clone(),
        b=parts.b0.clone(),
        server=server_vectors(parts),
        memory={name: parts.memory.rows(clients, size, parts.w0.dtype) for name, size in parts.client_rows.items()},
        seen=torch.zeros(clients, dtype=torch.bool),
        counts=torch.zeros(clients, dtype=torch.int64),
        written=torch.zeros(clients, dtype=torch.int64),
        uplink=_uplink(parts),
        extra=parts.algorithm.extra(),
    )


def _uplink(parts: Parts) -> dict[str, dict[str, Tensor]]:
    return {link.settings.name: link.extra(parts.layout.size) for link in parts.links}


def restored_state(parts: Parts, saved: dict[str, Any]) -> RunState:
    """State of this run from :meth:`RunState.tensors`, or as it comes from a file, every part where it belongs."""
    _refuse_other_shapes(parts, saved)
    memory, never = saved.get("memory", {}), torch.zeros(parts.timeline.num_clients, dtype=torch.int64)
    state = RunState.restore({"written": never, **saved, "memory": {}}, parts.hardware.device, torch.device("cpu"))
    if isinstance(memory, StoredRows):
        state.memory = {
            name: parts.memory.rows(form.shape[0], form.shape[1], form.dtype) for name, form in memory.forms.items()
        }
        state.written[memory.write_into(state.memory)] = state.round
    else:
        state.memory = parts.memory.adopt(memory)
    return state


def _refuse_other_shapes(parts: Parts, saved: dict[str, Any]) -> None:
    """Compare names, types and shapes with those of the initial state; of tensors that grow, the initial names alone."""
    clients = parts.timeline.num_clients
    expected = {"w": _form(parts.w0), "b": _form(parts.b0)}
    expected |= {"seen": f"{torch.bool} [{clients}]", "counts": f"{torch.int64} [{clients}]"}
    expected |= {f"server.{name}": _form(vector) for name, vector in server_vectors(parts).items()}
    expected |= {f"memory.{name}": f"{parts.w0.dtype} [{clients}, {size}]" for name, size in parts.client_rows.items()}
    expected |= {f"extra.{name}": "a tensor" for name in parts.algorithm.extra()}
    found = {name: _form(saved.get(name)) for name in ("w", "b", "seen", "counts")}
    memory = saved.get("memory", {})
    forms = memory.forms if isinstance(memory, StoredRows) else memory
    found |= {f"server.{name}": _form(value) for name, value in saved.get("server", {}).items()}
    found |= {f"memory.{name}": _form(value) for name, value in forms.items()}
    found |= {f"extra.{name}": "a tensor" for name in saved.get("extra", {}) if f"extra.{name}" in expected}
    expected |= _forms("uplink", _uplink(parts)) | _of_events(parts, saved.get("events", {}))
    found |= _forms("uplink", saved.get("uplink", {})) | _forms("events", saved.get("events", {}))
    for name in (*expected, *found):
        is_, should = found.get(name, "missing"), expected.get(name, "absent")
        if is_ != should:
            raise SettingsError(
                f"the saved state after round {saved.get('round')} is not of this run: {name} is {is_}, should be {should}; "
                "delete the run's folder to start the run again"
            )


def _of_events(parts: Parts, events: dict[str, Any]) -> dict[str, str]:
    """What the jobs under way should be like, whose number is that of the rows of ``running``."""
    if not isinstance(parts.settings.clock, Events):
        return {}
    rows, number = events.get("running"), f"{torch.int64} [{{}}]".format
    jobs = rows.shape[0] if isinstance(rows, Tensor) and rows.dim() == 2 and rows.shape[1] == len(Job._fields) else 0
    versions = {job.version for job in Queue.restore(events).running.values()} if jobs else set[int]()
    lengths = {name: len(events.get(name, ())) for name in ("present", "line", "arrived")}
    return {
        "events.running": number(f"{jobs}, {len(Job._fields)}"),
        "events.joules": f"{torch.float64} [{jobs}]",
        **{f"events.{name}": number(length) for name, length in lengths.items()},
        **{f"events.w.{version}": _form(parts.w0) for version in versions},
        **{f"events.b.{version}": _form(parts.b0) for version in versions},
    }


def _forms(name: str, value: Any) -> dict[str, str]:
    """Types and shapes of the tensors in nested mappings, with dotted names."""
    if isinstance(value, dict):
        return {long: form for key, item in value.items() for long, form in _forms(f"{name}.{key}", item).items()}
    return {name: _form(value)} if isinstance(value, Tensor) else {}


def _form(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else "no tensor"
