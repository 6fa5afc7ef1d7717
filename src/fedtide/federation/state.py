"""The state of a run before its first round, and as it is read back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.federation.clocks.queue import Job, Queue
from fedtide.federation.saving.rows import StoredRows
from fedtide.federation.types import Parts, RunState
from fedtide.methods.algorithms.base import Algorithm, server_vectors
from fedtide.settings.run import Async
from fedtide.world.timeline import Assignment, Timeline


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
        server=fresh_server(parts.algorithm, parts.w0),
        memory={},
        seen=torch.zeros(clients, dtype=torch.bool),
        counts=torch.zeros(clients, dtype=torch.int64),
        written=torch.zeros(clients, dtype=torch.int64),
        features={feature.name: feature.state(parts) for feature in parts.features},
        extra=parts.algorithm.extra(),
    )


def restored_state(parts: Parts, saved: dict[str, Any]) -> RunState:
    """State of this run from :meth:`RunState.tensors`, or as it comes from a file, every part where it belongs."""
    first, memory = _without_memory(parts), saved.get("memory", {})
    forms = memory.forms if isinstance(memory, StoredRows) else memory
    expected = _expected(first, parts.client_rows(parts.layout))
    if isinstance(parts.settings.mode, Async):
        expected |= _of_events(first, saved.get("events", {}))
    kept = saved.get("features", {})
    for feature in parts.features:
        expected |= _forms(feature.name, feature.state(parts, kept.get(feature.name, {})))
    _refuse_other_shapes(expected, saved, forms)
    values = {"written": first.written, **saved, "memory": {}}
    state = RunState.restore(values, parts.hardware.device, torch.device("cpu"))
    if isinstance(memory, StoredRows):
        state.memory = {
            name: parts.memory.rows(form.shape[0], form.shape[1], form.dtype) for name, form in forms.items()
        }
        state.written[memory.write_into(state.memory)] = state.round
    else:
        state.memory = parts.memory.adopt(memory)
    return state


def _expected(first: RunState, client_rows: dict[str, int]) -> dict[str, str]:
    """Types and shapes of a run's state; of tensors that grow, names alone."""
    expected = {name: _form(getattr(first, name)) for name in ("w", "b", "seen", "counts")}
    expected |= _forms("server", first.server)
    expected |= {f"memory.{name}": f"{first.w.dtype} [{len(first.seen)}, {size}]" for name, size in client_rows.items()}
    return expected | {f"extra.{name}": "a tensor" for name in first.extra}


def _refuse_other_shapes(expected: dict[str, str], saved: dict[str, Any], forms: dict[str, Tensor]) -> None:
    """Compare names, types and shapes of a saved state, ``forms`` of its memories, with those that it should have."""
    found = {name: _form(saved.get(name)) for name in ("w", "b", "seen", "counts")}
    found |= {f"server.{name}": _form(value) for name, value in saved.get("server", {}).items()}
    found |= {f"memory.{name}": _form(value) for name, value in forms.items()}
    found |= {f"extra.{name}": "a tensor" for name in saved.get("extra", {}) if f"extra.{name}" in expected}
    for name, value in [("events", saved.get("events", {})), *saved.get("features", {}).items()]:
        found |= _forms(name, value)
    for name in (*expected, *found):
        is_, should = found.get(name, "missing"), expected.get(name, "absent")
        if is_ != should:
            raise SettingsError(
                f"the checkpoint after round {saved.get('round')} is not of this run: {name} is {is_}, should be "
                f"{should}; delete the run directory to start the run again"
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


def fresh_server(algorithm: Algorithm, like: Tensor) -> dict[str, Tensor]:
    """An algorithm's server vectors at the start, of the form of the parameters [d]."""
    return {vector.name: torch.full_like(like, vector.start) for vector in server_vectors(algorithm)}


def forget_all(parts: Parts, state: RunState) -> None:
    """Clients, server and further state start again, but for the rows of features that last."""
    state.server = fresh_server(parts.algorithm, state.w)
    clear(parts, state, state.written.nonzero()[:, 0])
    state.seen.zero_()
    state.extra = parts.algorithm.extra()


def clear(parts: Parts, state: RunState, clients: Tensor) -> None:
    """Clear the memories of clients, int64 [m]. Those never written to are clear, and on disk would begin to take space."""
    for feature in parts.features:
        feature.forget(parts, state, clients, left=False)
    lasting = parts.rows_that(last=True)
    for name, rows in state.memory.items():
        if name not in lasting:
            rows.index_fill_(0, clients.to(rows.device), 0)
    state.written[clients] = state.round + 1


def keep_means(algorithm: Algorithm, state: RunState, timeline: Timeline, here: Assignment) -> None:
    """Every server vector that is declared as a mean becomes that of the clients present."""
    sizes = torch.from_numpy(timeline.sizes_of(here)).to(state.w.dtype)
    omega = (sizes / sizes.mean()).unsqueeze(1)
    for vector in server_vectors(algorithm):
        if vector.mean_of is not None:
            rows = state.memory[vector.mean_of][here.clients.tolist()]
            state.server[vector.name].copy_((omega.to(rows.device) * rows if vector.by_size else rows).mean(0))
