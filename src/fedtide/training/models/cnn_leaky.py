"""The network of FedCCFA on gray images."""

from typing import ClassVar

from torch import nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Model, Network, SequentialNetwork, require_image


class CnnLeaky(Model):
    """CNN with leaky ReLU: 5x5 convolutions 16 and 32, one linear layer of 128 (Chen et al. 2024, on Fashion-MNIST).

    117,066 parameters on 28 x 28 gray pixels and 10 classes. Images of at least 12 x 12 pixels. Torch's default
    initialization.
    """

    channels_last: ClassVar[bool] = True

    class Settings(PluginSettings):
        name: str = "cnn_leaky"

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        channels, *sides = require_image(self.settings.name, input_shape, vocabulary, smallest=12)
        height, width = (((side - 4) // 2 - 2) // 2 for side in sides)
        # Pooling before leaky ReLU: both are monotone, so they commute, and leaky ReLU sees a quarter of the values.
        body = nn.Sequential(
            nn.Conv2d(channels, 16, 5),
            nn.MaxPool2d(2),
            nn.LeakyReLU(),
            nn.Conv2d(16, 32, 5, padding=1),
            nn.MaxPool2d(2),
            nn.LeakyReLU(),
            nn.Flatten(),
            nn.Linear(32 * height * width, 128),
            nn.LeakyReLU(),
        )
        return SequentialNetwork(body, nn.Linear(128, num_classes))
