"""What methods with FedAvg's server step share."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Round


class AveragingSettings(AlgorithmSettings):
    server_lr: float = Field(1.0, gt=0, description="server step size eta_g")


class Averaging(Algorithm):
    """``w+ = w + eta_g sum_k p_k (theta_k - w)``, the mean of the local models for ``eta_g = 1``."""

    settings: AveragingSettings

    def finish(self, r: Round) -> Tensor:
        """The server's step along the mean displacement."""
        return r.average(self.settings.server_lr)
