"""Mean squared error."""

from torch import Tensor

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


class MeanSquaredError(Objective):
    """Squared error of a regression, the mean over its targets: (z - y)^2, without a factor 1/2."""

    class Settings(PluginSettings):
        name: str = "mean_squared_error"

    settings: Settings
    task = "regression"

    def loss(self, outputs: Outputs, labels: Tensor, counts: Tensor | None) -> Tensor:
        return (outputs.logits - labels).square().mean(-1)
