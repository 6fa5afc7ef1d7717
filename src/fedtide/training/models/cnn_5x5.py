"""The 5x5-convolution network of the FedDyn line of work."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models._inputs import require_image
from fedtide.training.models.base import Model, Network


class _Convolutional(Network):
    def __init__(self, shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        channels, *sides = shape
        height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
        # Pooling before ReLU: both are monotone, so they commute, and ReLU sees a quarter of the values.
        self.body = nn.Sequential(
            nn.Conv2d(channels, 64, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * height * width, 384),
            nn.ReLU(),
            nn.Linear(384, 192),
            nn.ReLU(),
        )
        self.head = nn.Linear(192, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.body(inputs)
        return features


class Cnn5x5(Model):
    """CNN without normalization: 5x5 convolutions 64 and 64, linear layers 384 and 192.

    797,962 parameters on 3 x 32 x 32 pixels and 10 classes, 815,332 on 100. Images of at least 16 x 16 pixels.
    """

    channels_last: ClassVar[bool] = True

    class Settings(PluginSettings):
        name: str = "cnn_5x5"

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        return _Convolutional(require_image(self.settings.name, input_shape, vocabulary, smallest=16), num_classes)
