"""ResNet-18."""

from typing import ClassVar

from fedtide.training.models._residual import ResidualModel, ResidualSettings


class Resnet18(ResidualModel):
    """ResNet-18 with random weights: post-activation blocks (He et al. 2016), any norm, two stems.

    11,181,642 parameters with the ImageNet stem and 10 classes, 11,573,066 with the projection; 11,173,962 with the
    CIFAR stem.
    """

    blocks: ClassVar[tuple[int, int, int, int]] = (2, 2, 2, 2)

    class Settings(ResidualSettings):
        name: str = "resnet18"

    settings: Settings
