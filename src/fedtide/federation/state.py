"""Everything needed to resume a run; random generators are never part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedtide.federation.parts import Parts


@dataclass
class RunState:
    """State between two rounds.

    Attributes:
        round: number of rounds done.
        w, b: global parameters [d] and floating buffers [q].
        server: the algorithm's server vectors [d].
        memory: the clients' vectors [N, d] by name: the algorithm's, ``momentum`` of a kept local optimiser, ``latest``
            models where they are evaluated.
        seen: bool [N], clients that have a memory. counts: int64 [N], rounds each client took part in.
        extra: the algorithm's further tensors. initialiser: the initialiser's.
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
    extra: dict[str, Tensor] = field(default_factory=dict)
    initialiser: dict[str, Tensor] = field(default_factory=dict)
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

        placed = {key: place(value, memory if key == "memory" else device) for key, value in values.items()}
        return RunState(**placed)


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
        memory={name: parts.memory.rows(clients, parts.layout.size, parts.w0.dtype) for name in parts.client_vectors()},
        seen=torch.zeros(clients, dtype=torch.bool),
        counts=torch.zeros(clients, dtype=torch.int64),
        extra=parts.algorithm.extra(),
    )


def restored_state(parts: Parts, saved: dict[str, Any]) -> RunState:
    """State from :meth:`RunState.tensors`, every part where it belongs."""
    state = RunState.restore(saved, parts.device, torch.device("cpu"))
    state.memory = parts.memory.adopt(state.memory)
    return state
