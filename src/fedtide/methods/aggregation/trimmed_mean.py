"""The mean of every coordinate without its extremes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedtide.core.plugins import Tunable
from fedtide.methods.aggregation._ranks import middle
from fedtide.methods.aggregation.base import Combined, Rule, RuleSettings
from fedtide.training.engine.flat import weighted_sum


class TrimmedMean(Rule):
    """The mean of every coordinate without its smallest and largest values (Yin et al. 2018); weights do not count.

    Where nothing is cut off, with few participants, it is the weighted mean. A participant's kept share is that of the
    coordinates in which its value is not cut off.
    """

    class Settings(RuleSettings):
        name: str = "trimmed_mean"
        trim: float = Tunable(
            0.1, low=0.0, high=0.45, ge=0, lt=0.5, description="share of the values cut off at each end, rounded down"
        )

    settings: Settings
    statistics = "rule"

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        cut = math.floor(self.settings.trim * len(D) + 1e-9)  # 0.29 times 100 is a little less than 29
        return middle(D, cut) if cut else Combined(weighted_sum(p, D), torch.ones_like(p))
