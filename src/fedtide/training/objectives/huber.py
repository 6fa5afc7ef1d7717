"""Huber loss."""

import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


class Huber(Objective):
    """Half the squared error of a regression near zero, linear beyond ``delta`` (Huber 1964), the mean over its targets.

    ``e^2 / 2`` for an error |e| of at most delta, else ``delta (|e| - delta / 2)``: no sample pulls harder than delta. Where
    no error exceeds delta it is half the mean squared error.
    """

    class Settings(PluginSettings):
        name: str = "huber"
        delta: float = Field(1.0, gt=0, description="error beyond which the loss is linear, in the unit of the targets")

    settings: Settings
    task = "regression"

    def loss(self, outputs: Outputs, labels: Tensor, counts: Tensor | None) -> Tensor:
        error, delta = outputs.logits - labels, self.settings.delta
        size = error.abs()
        return torch.where(size <= delta, 0.5 * error.square(), delta * (size - 0.5 * delta)).mean(-1)
