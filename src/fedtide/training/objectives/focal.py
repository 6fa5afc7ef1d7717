"""Focal loss."""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


class Focal(Objective):
    """Cross-entropy, down-weighted for well-classified samples (Lin et al. 2017): -(1 - p)^gamma log p, p = p(label).

    ``gamma = 0`` is bitwise cross-entropy. Without class weights alpha.
    """

    class Settings(PluginSettings):
        name: str = "focal"
        gamma: float = Field(2.0, ge=0, description="focusing exponent: larger values down-weight easy samples more")

    settings: Settings

    def loss(self, outputs: Outputs, labels: Tensor, counts: Tensor | None) -> Tensor:
        log_p = functional.log_softmax(outputs.logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        # The floor keeps the derivative of (1 - p)^gamma finite at p = 1 for gamma < 1.
        rest = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
        return -rest.pow(self.settings.gamma) * log_p
