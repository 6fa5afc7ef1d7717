import math

from pydantic import Field
from torch import Tensor, nn

from fedtide.training.models.base import Model, Network


class _Bottleneck(Network):
    def __init__(self, size: int, width: int, num_classes: int) -> None:
        super().__init__()
        self.narrow = nn.Linear(size, width)
        self.head = nn.Linear(width, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        return self.narrow(inputs.flatten(1)).tanh()


class Bottleneck(Model):
    """One narrow hidden layer with tanh."""

    family = "mlp"

    class Settings(Model.Settings):
        name: str = "bottleneck"
        width: int = Field(8, ge=1, description="units of the hidden layer")

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        return _Bottleneck(math.prod(input_shape), self.settings.width, num_classes)
