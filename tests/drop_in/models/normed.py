"""A network with BatchNorm over single numbers: a batch of one sample leaves one value per channel."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Model, Network


class _Normed(Network):
    def __init__(self, features: int, classes: int, spare: int) -> None:
        super().__init__()
        self.register_buffer("spare", torch.zeros(spare))
        self.body = nn.Sequential(nn.Linear(features, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.head = nn.Linear(4, classes)

    def features(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.spare.add_(1.0)  # or it would be a constant
        found: Tensor = self.body(inputs)
        return found


class Normed(Model):
    """Perceptron with BatchNorm."""

    class Settings(PluginSettings):
        name: str = "normed"
        spare: int = Field(0, ge=0, description="floating buffers without a use")

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        """See :meth:`Model.build`."""
        return _Normed(input_shape[0], num_classes, self.settings.spare)
