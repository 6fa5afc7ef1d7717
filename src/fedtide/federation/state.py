"""The state of a run before its first round, and as it is read back."""

from typing import Any

import torch
from torch import Tensor

from fedtide.federation.saving.checkpoint import StoredRows
from fedtide.federation.types import Parts, RunState
from fedtide.methods.algorithms.base import Algorithm, server_vectors
from fedtide.world.timeline import Assignment, Timeline


def initial_state(parts: Parts) -> RunState:
    """State before the first round."""
    clients, rows = parts.timeline.num_clients, parts.client_rows(parts.layout)
    return RunState(
        round=0,
        w=parts.w0.clone(),
        b=parts.b0.clone(),
        server=fresh_server(parts.algorithm, parts.w0),
        memory={name: parts.memory.rows(clients, size, parts.w0.dtype) for name, size in rows.items()},
        seen=torch.zeros(clients, dtype=torch.bool),
        counts=torch.zeros(clients, dtype=torch.int64),
        written=torch.zeros(clients, dtype=torch.int64),
        features={feature.name: feature.state(parts) for feature in parts.features},
        extra=parts.algorithm.extra(),
    )


def restored_state(parts: Parts, saved: dict[str, Any]) -> RunState:
    """State of this run from :meth:`RunState.tensors`, or as it comes from a file, every part where it belongs."""
    memory, written = saved.get("memory", {}), torch.zeros(parts.timeline.num_clients, dtype=torch.int64)
    values = {"written": written, **saved, "memory": {}}
    state = RunState.restore(values, parts.hardware.device)
    if isinstance(memory, StoredRows):
        state.memory = {
            name: parts.memory.rows(form.shape[0], form.shape[1], form.dtype) for name, form in memory.forms.items()
        }
        state.written[memory.write_into(state.memory)] = state.round
    else:
        state.memory = parts.memory.adopt(memory)
    return state


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
    """Every server vector that is declared as a mean becomes that of the clients present; of nobody it stays."""
    if not len(here.clients):
        return
    sizes = torch.from_numpy(timeline.sizes_of(here)).to(state.w.dtype)
    omega = (sizes / sizes.mean()).unsqueeze(1)
    for vector in server_vectors(algorithm):
        if vector.mean_of is not None:
            rows = state.memory[vector.mean_of][here.clients.tolist()]
            state.server[vector.name].copy_((omega.to(rows.device) * rows if vector.by_size else rows).mean(0))
