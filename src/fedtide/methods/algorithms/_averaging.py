"""What methods with FedAvg's server step share."""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from fedtide.core.plugins import PluginSettings
from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Round


class AveragingSettings(AlgorithmSettings):
    server_lr: float = Field(1.0, gt=0, description="server step size eta_g")


class Averaging(Algorithm):
    """``w+ = w + eta_g sum_k p_k (theta_k - w)``, the mean of the local models for ``eta_g = 1``."""

    Settings: ClassVar[type[PluginSettings]] = AveragingSettings
    settings: AveragingSettings

    def finish(self, r: Round) -> Tensor:
        return r.average(self.settings.server_lr)
