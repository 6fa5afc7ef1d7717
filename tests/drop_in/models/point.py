"""A point in space instead of a network."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Model, Network


class _Workspace(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(size))

    def forward(self, features: Tensor) -> Tensor:
        return self.theta.expand(len(features), -1)


class _Point(Network):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.head = _Workspace(size)

    def features(self, inputs: Tensor) -> Tensor:
        return inputs


class Point(Model):
    """Parameters theta [p] and nothing else: logits are theta, features are the sample."""

    family: ClassVar[str] = "linear"

    class Settings(PluginSettings):
        """No settings."""

        name: str = "point"

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        """See :meth:`fedtide.training.models.base.Model.build`."""
        return _Point(input_shape[0])
