"""Pre-activation ResNet-18."""

from collections.abc import Callable

from pydantic import Field
from torch import Tensor, nn

from fedtide.training.models._layers import Norm, NormSettings, kaiming_fan_out
from fedtide.training.models.base import Model, Network, require_image


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.norm1 = norm(before)
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm2 = norm(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.relu = nn.ReLU()
        same = stride == 1 and before == after
        self.shortcut = None if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        active = self.relu(self.norm1(inputs))
        skipped: Tensor = inputs if self.shortcut is None else self.shortcut(active)
        residual: Tensor = self.conv2(self.relu(self.norm2(self.conv1(active))))
        return skipped + residual


class _PreactResNet(Network):
    def __init__(self, channels: int, num_classes: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.stages = nn.Sequential()
        width = 64
        for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            self.stages.append(nn.Sequential(_Block(width, after, stride, norm), _Block(after, after, 1, norm)))
            width = after
        self.norm = norm(width)
        self.relu = nn.ReLU()
        self.head = nn.Linear(width, num_classes)
        kaiming_fan_out(self)

    def features(self, inputs: Tensor) -> Tensor:
        maps: Tensor = self.relu(self.norm(self.stages(self.stem(inputs))))
        return maps.mean((2, 3))


class PreactResnet18(Model):
    """Pre-activation ResNet-18 for small images (He et al. 2016, identity mappings).

    3x3 stem at full resolution, stages 64, 128, 256 and 512 of two blocks, 1x1 shortcuts on the activated input where
    the shape changes. 11,172,170 parameters with 10 classes, 11,218,340 with 100. Kaiming-normal convolutions (fan
    out), linear bias zero.
    """

    class Settings(NormSettings):
        name: str = "preact_resnet18"
        norm: Norm = Field("layer", description="normalization: group, layer or batch, as in `resnet18`")

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        channels, _, _ = require_image(self.settings.name, input_shape, vocabulary)
        return _PreactResNet(channels, num_classes, self.settings.norm_layer())
