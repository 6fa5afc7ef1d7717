"""Convolutions over time."""

from itertools import pairwise

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Model, Network, require_series


class _Convolutions(Network):
    def __init__(self, channels: int, widths: tuple[int, ...], kernel: int, num_classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise((channels, *widths)):
            layers += [nn.Conv1d(before, after, kernel, padding=kernel // 2), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.body(inputs).mean(2)
        return features


class Cnn1d(Model):
    """Convolutions over time with ReLU, their mean over time, and one linear layer, for series of any length.

    Ends of a series are padded with zeros. 11,106 parameters with 4 channels, two layers of 32 and 64 and 2 classes. Torch's
    default initialization.
    """

    class Settings(PluginSettings):
        name: str = "cnn_1d"
        widths: tuple[PositiveInt, ...] = Field((32, 64), min_length=1, description="channels of the convolutions")
        kernel: int = Field(5, ge=1, description="time steps per convolution kernel; odd numbers keep the length")

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        channels, _ = require_series(self.settings.name, input_shape, vocabulary)
        return _Convolutions(channels, self.settings.widths, self.settings.kernel, num_classes)
