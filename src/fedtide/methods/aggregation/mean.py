"""The weighted mean."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import model_validator
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.aggregation.base import Combined, Rule, RuleSettings
from fedtide.training.engine.flat import weighted_sum


class Mean(Rule):
    """The mean of the updates with the round's weights (McMahan et al. 2017)."""

    class Settings(RuleSettings):
        name: str = "mean"

        @model_validator(mode="after")
        def _whole(self) -> Self:
            if self.bucket is not None:
                raise SettingsError(f"bucket = {self.bucket}: bucketing does not change a mean; use null")
            return self

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        return Combined(weighted_sum(p, D), torch.ones_like(p))
