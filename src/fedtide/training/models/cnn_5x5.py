"""The 5x5-convolution network of the FedDyn line of work."""

from typing import ClassVar

from torch import nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Model, Network, SequentialNetwork, require_image


class Cnn5x5(Model):
    """CNN without normalization: 5x5 convolutions 64 and 64, linear layers 384 and 192.

    797,962 parameters on 3 x 32 x 32 pixels and 10 classes, 815,332 on 100. Images of at least 16 x 16 pixels.
    """

    channels_last: ClassVar[bool] = True

    class Settings(PluginSettings):
        name: str = "cnn_5x5"

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        channels, *sides = require_image(self.settings.name, input_shape, vocabulary, smallest=16)
        height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
        # Pooling before ReLU: both are monotone, so they commute, and ReLU sees a quarter of the values.
        body = nn.Sequential(
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
        return SequentialNetwork(body, nn.Linear(192, num_classes))
