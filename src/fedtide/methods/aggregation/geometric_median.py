"""The point with the smallest sum of distances from the updates."""

import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.plugins import Tunable
from fedtide.methods.aggregation.base import Combined, Rule, RuleSettings, shares, to_point
from fedtide.training.engine.flat import weighted_sum


class GeometricMedian(Rule):
    """Steps of Weiszfeld's algorithm from the weighted mean, RFA (Pillutla et al. 2022), all of them.

    z+ = sum beta_k D_k / sum beta_k with beta_k = p_k / max(floor, |D_k - z|). Far from the median a step comes closer by a
    factor only, about 1 / p_k of a single update far away, so updates of any length need more steps or a bound. A participant's
    kept share is beta_k / p_k of the last step, relative to the largest one.
    """

    class Settings(RuleSettings):
        name: str = "geometric_median"
        iterations: int = Tunable(4, low=1, high=8, ge=1, description="steps")
        floor: float = Field(1e-5, gt=0, description="lower bound of the divisor")

    settings: Settings

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        z, closeness = weighted_sum(p, D), torch.ones_like(p)
        for _ in range(self.settings.iterations):
            closeness = to_point(D, z).clamp_(min=self.settings.floor).reciprocal_()
            z = weighted_sum(shares(p * closeness), D)
        return Combined(z, closeness / closeness.max())
