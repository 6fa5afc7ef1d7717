"""The weighted mean."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtide.aggregation.base import Combined, Rule
from fedtide.engine.flat import weighted_sum


class Mean(Rule):
    """The mean of the updates with the round's weights (McMahan et al. 2017)."""

    def combine(self, D: Tensor, p: Tensor) -> Combined:
        return Combined(weighted_sum(p, D), torch.ones_like(p))
