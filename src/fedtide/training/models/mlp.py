"""Fully connected network."""

from itertools import pairwise
from typing import ClassVar

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Model, Network, require_numbers


class _Perceptron(Network):
    def __init__(self, size: int, widths: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential()
        for before, after in pairwise((size, *widths)):
            self.hidden.extend([nn.Linear(before, after), nn.ReLU()])
        self.head = nn.Linear(widths[-1], num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.hidden(inputs.flatten(1))
        return features


class Mlp(Model):
    """Multi-layer perceptron with ReLU.

    Takes images or vectors. Published widths: 200-200 (199,210 parameters on 28 x 28 pixels and 10 classes), 100-100
    (89,610) and 200 (159,010).
    """

    family: ClassVar[str] = "mlp"

    class Settings(PluginSettings):
        name: str = "mlp"
        widths: tuple[PositiveInt, ...] = Field((200, 200), min_length=1, description="units of each hidden layer")

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        size = require_numbers(self.settings.name, input_shape, vocabulary)
        return _Perceptron(size, self.settings.widths, num_classes)
