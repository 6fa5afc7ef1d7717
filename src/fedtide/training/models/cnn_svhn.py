"""The SVHN network of dynamic initialization."""

from torch import Tensor, nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import KeyedDropout, Model, Network, Outputs, require_image


class _SvhnNet(Network):
    def __init__(self, shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        # Pooling before ReLU: both are monotone, so they commute, and ReLU sees a quarter of the values.
        self.hidden = nn.Sequential(
            *_convolution(channels, 32),
            nn.ReLU(),
            *_convolution(32, 32),
            nn.MaxPool2d(2),
            nn.ReLU(),
            *_convolution(32, 64),
            nn.ReLU(),
            *_convolution(64, 64),
            nn.MaxPool2d(2),
            nn.ReLU(),
            *_convolution(64, 128),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128 * (height // 8) * (width // 8), 256),
            nn.ReLU(),
        )
        self.dropout = KeyedDropout(0.4)
        self.head = nn.Linear(256, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.dropout(self.hidden(inputs))
        return features

    def outputs(self, inputs: Tensor) -> Outputs:
        # Contrastive objectives compare the hidden layer before dropout.
        hidden = self.hidden(inputs)
        return Outputs(self.head(self.dropout(hidden)), hidden)


def _convolution(before: int, after: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after)


class CnnSvhn(Model):
    """CNN with BatchNorm and dropout: 3x3 convolutions 32, 32, 64, 64 and 128, one linear layer of 256.

    667,178 parameters on 3 x 32 x 32 pixels and 10 classes. Images of at least 8 x 8 pixels. Dropout 0.4 before the
    classifier; contrastive objectives compare the 256 hidden units before it.
    """

    class Settings(PluginSettings):
        name: str = "cnn_svhn"

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        return _SvhnNet(require_image(self.settings.name, input_shape, vocabulary, smallest=8), num_classes)
