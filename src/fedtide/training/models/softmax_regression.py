"""Softmax regression."""

from typing import ClassVar

from torch import Tensor, nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Model, Network, require_numbers


class _Softmax(Network):
    def __init__(self, size: int, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(size, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1)

    def contrast(self, features: Tensor, logits: Tensor) -> Tensor:
        # The features are the inputs, the same for all models, so contrastive objectives compare the logits.
        return logits


class SoftmaxRegression(Model):
    """Softmax regression: one linear layer (7,850 parameters on 28 x 28 pixels and 10 classes).

    Takes images or vectors. Contrastive objectives compare the logits.
    """

    family: ClassVar[str] = "linear"

    class Settings(PluginSettings):
        name: str = "softmax_regression"

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        return _Softmax(require_numbers(self.settings.name, input_shape, vocabulary), num_classes)
