"""The weighted mean."""

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.aggregation.base import Combined, Rule, RuleSettings
from fedtide.training.engine.flat import weighted_sum


class Mean(Rule):
    """The mean of the updates with the round's weights (McMahan et al. 2017)."""

    class Settings(RuleSettings):
        name: str = "mean"
        bucket: None = Field(None, description="null: bucketing does not change a mean")

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        return Combined(weighted_sum(p, D), torch.ones_like(p))
