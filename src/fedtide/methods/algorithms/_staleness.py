"""What asynchronous methods share: the weight of a stale result, and the pull toward the model it started from."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._preview import explicit_step
from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Local, Round, RunPreview, Tunable


class StalenessSettings(AlgorithmSettings):
    staleness: Literal["polynomial", "hinge", "constant"] = Field(
        "polynomial",
        description="weight of a result that is tau updates behind: polynomial: (1 + tau)^-exponent; hinge: 1 up to "
        "`patience`, then 1 / (slope (tau - patience) + 1); constant: 1",
    )
    exponent: float = Tunable(0.5, low=0.1, high=2.0, ge=0, description="polynomial: exponent")
    slope: float = Field(10.0, gt=0, description="hinge: slope")
    patience: float = Field(4.0, ge=0, description="hinge: updates that a result may be behind at full weight")
    mu: float = Field(0.0, ge=0, description="strength of the pull toward the model that the client started from")


class Asynchronous(Algorithm):
    """Methods whose results count less the more updates they are behind."""

    settings: StalenessSettings

    modes = ("async",)

    def freshness(self, r: Round) -> Tensor:
        """s(tau) [C, 1], 1 for a result that is not behind."""
        settings, tau = self.settings, r.job.staleness
        if settings.staleness == "polynomial":
            return (1 + tau) ** -settings.exponent
        if settings.staleness == "hinge":
            return 1 / (settings.slope * (tau - settings.patience).clamp(min=0) + 1)
        return torch.ones_like(tau)

    def local(self, r: Round) -> Local:
        mu = self.settings.mu
        return Local(pull=mu, toward=r.base) if mu else Local()

    def advice(self, run: RunPreview) -> list[str]:
        return explicit_step(run, "mu", self.settings.mu)
