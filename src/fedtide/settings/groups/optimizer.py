"""Settings of the local optimizer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedtide.core.plugins import SettingsModel
from fedtide.settings.choices import Choice


class Sgd(SettingsModel):
    """Stochastic gradient descent, with ``local.momentum`` and ``local.nesterov``."""

    name: Literal["sgd"] = "sgd"


class Adam(SettingsModel):
    """Adam (Kingma and Ba 2015), with bias correction."""

    name: Literal["adam"] = "adam"
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean gradient")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the mean squared gradient")
    eps: float = Field(1e-8, gt=0, description="added to the root of the mean squared gradient")
    amsgrad: bool = Field(False, description="AMSGrad: divide by the largest mean square so far (Reddi et al. 2018)")


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters instead of joining the gradient (Loshchilov and Hutter 2019)."""

    name: Literal["adamw"] = "adamw"  # type: ignore[assignment]


class Adagrad(SettingsModel):
    """Adagrad (Duchi et al. 2011)."""

    name: Literal["adagrad"] = "adagrad"
    eps: float = Field(1e-10, gt=0, description="added to the root of the sum of squared gradients")
    initial: float = Field(0.0, ge=0, description="sum of squared gradients before the first step")
    lr_decay: float = Field(0.0, ge=0, description="step k divides the learning rate by 1 + (k - 1) lr_decay")


Optimizer = Sgd | Adam | AdamW | Adagrad
OptimizerChoice = Annotated[Optimizer, Choice(Optimizer)]
