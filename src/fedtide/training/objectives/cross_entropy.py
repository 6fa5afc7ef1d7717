"""Cross-entropy."""

from torch import Tensor
from torch.nn import functional

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


class CrossEntropy(Objective):
    """Cross-entropy of the softmax: -log p(label)."""

    class Settings(PluginSettings):
        name: str = "cross_entropy"

    settings: Settings

    def loss(self, outputs: Outputs, labels: Tensor, counts: Tensor | None) -> Tensor:
        return -functional.log_softmax(outputs.logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
