"""The weight initialization of the residual-network papers."""

from __future__ import annotations

from torch import nn


def kaiming_fan_out(network: nn.Module) -> None:
    """Draw convolution weights from N(0, 2 / fan_out) (He et al. 2015, backward case) and zero the linear biases.

    Works in place; everything else keeps the library default.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
