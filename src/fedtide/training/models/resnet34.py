"""ResNet-34."""

from typing import ClassVar

from fedtide.training.models._residual import ResidualModel, ResidualSettings


class Resnet34(ResidualModel):
    """ResNet-34 with random weights: post-activation blocks (He et al. 2016), any norm, two stems.

    21,335,972 parameters with the ImageNet stem and 100 classes; 21,387,272 with 200, 21,730,056 with the projection.
    """

    blocks: ClassVar[tuple[int, int, int, int]] = (3, 4, 6, 3)

    class Settings(ResidualSettings):
        name: str = "resnet34"

    settings: Settings
