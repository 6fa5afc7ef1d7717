"""LeNet-style convolutional network."""

from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models._layers import kaiming_fan_out
from fedtide.training.models.base import Model, Network, SequentialNetwork, require_image


class Lenet(Model):
    """LeNet-style CNN: 5x5 convolutions 6 and 16, optional GroupNorm, linear layers 120 and 84.

    62,050 parameters on 3 x 32 x 32 pixels and 10 classes (69,700 with 100), 48,890 on 28 x 28 gray pixels and 62
    classes; 44 of them belong to the norms. Images of at least 16 x 16 pixels. Kaiming-normal convolutions (fan out),
    linear biases zero.
    """

    channels_last: ClassVar[bool] = True

    class Settings(PluginSettings):
        name: str = "lenet"
        norm: Literal["group", "none"] = Field(
            "group", description="group: GroupNorm with one group after each convolution; none: no normalization"
        )

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        channels, *sides = require_image(self.settings.name, input_shape, vocabulary, smallest=16)
        height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
        norm = self.settings.norm == "group"
        # Pooling before ReLU: both are monotone, so they commute, and ReLU sees a quarter of the values.
        body = nn.Sequential(
            nn.Conv2d(channels, 6, 5),
            nn.GroupNorm(1, 6) if norm else nn.Identity(),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(6, 16, 5),
            nn.GroupNorm(1, 16) if norm else nn.Identity(),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * height * width, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
        network = SequentialNetwork(body, nn.Linear(84, num_classes))
        kaiming_fan_out(network)
        return network
