"""Normalization of feature maps, chosen by name, and the initial weights of the residual-network papers."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from fedtide.core.bounds import WHOLE
from fedtide.core.plugins import PluginSettings

Norm = Literal["group", "batch", "layer"]


class NormSettings(PluginSettings):
    norm: Norm = Field(
        "group",
        description="group: per sample, over `groups` groups of channels; layer: per sample, over all channels; "
        "batch: per channel, over the batch, with running statistics; these are used, and kept, for a "
        "single value per channel",
    )
    groups: Annotated[Literal[1, 2, 4, 8, 16, 32, 64], WHOLE] = Field(2, description="channel groups of norm `group`")

    def norm_layer(self) -> Callable[[int], nn.Module]:
        """Makes a normalization layer for a number of channels, with an affine map per channel.

        ``layer`` normalizes over (channels, height, width): GroupNorm with one group.
        """
        if self.norm == "batch":
            return nn.BatchNorm2d
        return partial(nn.GroupNorm, self.groups if self.norm == "group" else 1)


def kaiming_fan_out(network: nn.Module) -> None:
    """Draw convolution weights from N(0, 2 / fan_out) (He et al. 2015, backward case) and zero the linear biases.

    Works in place; everything else keeps the library default.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
