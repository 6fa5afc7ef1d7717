"""A loss whose local training has a closed form."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


class Quadratic(Objective):
    """a/2 |theta|^2 - x . theta for the model ``point``, with the curvature a of the sample's label.

    The gradient is a theta - x: the minimum lies at x / a, and a = 0 gives a constant gradient.
    """

    class Settings(PluginSettings):
        """Settings of the loss."""

        name: str = "quadratic"
        curvatures: tuple[float, ...] = Field((1.0,), description="a of each label")

    def loss(self, outputs: Outputs, labels: Tensor, counts: Tensor | None) -> Tensor:
        """See :meth:`fedtide.training.objectives.base.Objective.loss`."""
        theta, x = outputs.logits, outputs.features
        a = torch.tensor(self.settings.curvatures, dtype=theta.dtype)[labels]
        return a / 2 * theta.square().sum(-1) - (x * theta).sum(-1)
