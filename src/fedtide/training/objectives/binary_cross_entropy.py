"""Binary cross-entropy."""

from torch import Tensor
from torch.nn import functional

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


class BinaryCrossEntropy(Objective):
    """Cross-entropy of the sigmoid for each label of a multilabel task, the mean over the labels."""

    class Settings(PluginSettings):
        name: str = "binary_cross_entropy"

    settings: Settings
    task = "multilabel"

    def loss(self, outputs: Outputs, labels: Tensor, counts: Tensor | None) -> Tensor:
        return (functional.softplus(outputs.logits) - labels * outputs.logits).mean(-1)
