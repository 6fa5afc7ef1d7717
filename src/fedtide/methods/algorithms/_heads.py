"""The last layer of models as a matrix, and softmax regression of it on features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedtide.training.engine.flat import Layout


@dataclass(frozen=True)
class Head:
    """Where the last layer of a network is in its flat vector: L classes, q features.

    As a matrix it is [L, q + 1], the bias last, or [L, q] without one.
    """

    places: Tensor
    classes: int
    width: int
    bias: bool

    @staticmethod
    def of(layout: Layout) -> Head:
        """The head of a network with a linear one."""
        mask = layout.mask("head")
        slots = [slot for slot in layout.parameters if mask[slot.start]]
        classes, width = slots[0].shape
        return Head(mask.nonzero()[:, 0], classes, width, len(slots) > 1)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.places)

    def read(self, models: Tensor) -> Tensor:
        """Heads [..., L, q + 1] of models [..., d]."""
        own = models[..., self.places.to(models.device)]
        weight = own[..., : self.classes * self.width].view(*own.shape[:-1], self.classes, self.width)
        return torch.cat([weight, own[..., self.classes * self.width :, None]], -1) if self.bias else weight

    def write(self, models: Tensor, heads: Tensor) -> Tensor:
        """Models [..., d] with other heads."""
        parts = [heads[..., : self.width].flatten(-2), *([heads[..., self.width]] if self.bias else [])]
        return models.index_copy(-1, self.places.to(models.device), torch.cat(parts, -1))

    def inputs(self, features: Tensor) -> Tensor:
        """What a matrix is multiplied with: features [n, q], with a one for the bias."""
        return functional.pad(features, (0, 1), value=1.0) if self.bias else features


def descended(
    head: Tensor, x: Tensor, labels: Tensor, passes: Iterable[Tensor], batch: int, rate: float, decay: float = 0.0
) -> Tensor:
    """A head [L, p] after SGD on the mean cross-entropy over inputs x [n, p] with labels [n], in the order of the passes."""
    own = functional.one_hot(labels, len(head)).to(x)
    for order in passes:
        for some in torch.split(order, batch):
            wrong = torch.softmax(x[some] @ head.T, 1) - own[some]
            head = head - rate * (wrong.T @ x[some] / len(some) + decay * head)
    return head
