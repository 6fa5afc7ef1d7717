"""Which model each client is evaluated with: one form for personal models and for clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.methods.algorithms._round import Vectors
from fedtide.training.engine.flat import Layout


class Served(NamedTuple):
    """Models, and which of them each client uses.

    Attributes:
        models: [M, d]. of: int64 [n], a row of ``models`` for each client asked for.
        buffers: floating buffers [M, q] of the models; None for those of the global model.
    """

    models: Tensor
    of: Ints
    buffers: Tensor | None = None


@dataclass(frozen=True)
class ServedTo:
    """Some of the clients present after a round, participants or not, n of them.

    Attributes:
        ids: of the clients, ascending. w: [d], the new global model. b: [q], its floating buffers.
        client: their memories [n, d], zero where a client has none. seen: [n, 1], 1.0 where it has one.
        extra: named tensors that the algorithm keeps. layout: names and slices of the parameters.
        losses: mean cross-entropy [n, M] of models [M, d] on the clients' training samples, infinite without any.
        concepts: [n, concepts], the share of their samples that they see under each concept of the world.
    """

    ids: list[int]
    w: Tensor
    b: Tensor
    client: Vectors
    seen: Tensor
    extra: dict[str, Tensor]
    layout: Layout
    losses: Callable[[Tensor], Tensor]
    concepts: Tensor
