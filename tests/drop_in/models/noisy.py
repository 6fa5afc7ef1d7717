"""A network with dropout and without BatchNorm, so that every executor takes it."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor, nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import KeyedDropout, Model, Network


class _Noisy(Network):
    def __init__(self, size: int, num_classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(size, 8)
        self.dropout = KeyedDropout(0.4)
        self.head = nn.Linear(8, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        return self.dropout(self.hidden(inputs.flatten(1)).tanh())  # type: ignore[no-any-return]


class Noisy(Model):
    """One hidden layer with dropout."""

    family: ClassVar[str] = "mlp"

    class Settings(PluginSettings):
        """No settings."""

        name: str = "noisy"

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        """See :meth:`fedtide.training.models.base.Model.build`."""
        return _Noisy(math.prod(input_shape), num_classes)
