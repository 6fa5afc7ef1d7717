"""Post-activation residual networks of any depth (He et al. 2016, basic blocks)."""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, ResNet

from fedtide.training.models._layers import NormSettings, kaiming_fan_out
from fedtide.training.models.base import Model, Network, require_image

_WIDTH = 512


class ResidualSettings(NormSettings):
    stem: Literal["imagenet", "cifar"] = Field(
        "imagenet",
        description="imagenet: 7x7 convolution with stride 2 and max-pool; cifar: 3x3 convolution, full resolution",
    )
    projection: bool = Field(False, description="linear layers of 512 and 256 units before the classifier")


class _ResidualNet(Network):
    def __init__(self, blocks: tuple[int, ...], channels: int, num_classes: int, settings: ResidualSettings) -> None:
        super().__init__()
        self.backbone = ResNet(BasicBlock, list(blocks), norm_layer=settings.norm_layer())
        if settings.stem == "cifar":
            self.backbone.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
            self.backbone.maxpool = nn.Identity()
        else:
            self.backbone.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        kaiming_fan_out(self.backbone.conv1)
        self.backbone.fc = nn.Identity()
        self.projection = nn.Sequential()
        if settings.projection:
            self.projection.extend([nn.Linear(_WIDTH, 512), nn.ReLU(), nn.Linear(512, 256)])
        self.head = nn.Linear(256 if settings.projection else _WIDTH, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.projection(self.backbone(inputs))
        return features


class ResidualModel(Model):
    """Residual network; a sub-class sets the number of blocks of each of the four stages."""

    blocks: ClassVar[tuple[int, int, int, int]]
    Settings = ResidualSettings
    settings: ResidualSettings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        channels, _, _ = require_image(self.settings.name, input_shape, vocabulary)
        return _ResidualNet(self.blocks, channels, num_classes, self.settings)
