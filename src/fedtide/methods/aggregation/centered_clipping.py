"""The mean of updates that are clipped around the last result."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.plugins import Tunable
from fedtide.methods.aggregation.base import Combined, Rule, RuleSettings, to_point
from fedtide.training.engine.flat import weighted_sum


class CentredClipping(Rule):
    """The center moves by the weighted mean of the clipped differences from it (Karimireddy, He and Jaggi 2021).

    v <- v + sum p_k min(1, radius / |D_k - v|) (D_k - v), which is repeated. It begins with the last round's result, with zero
    in the first round of a session. A participant's kept share is its factor of the last pass.
    """

    class Settings(RuleSettings):
        name: str = "centered_clipping"
        radius: float = Tunable(
            1.0,
            low=0.01,
            high=10.0,
            log=True,
            gt=0,
            description="clipping radius around the center",
        )
        iterations: int = Tunable(1, low=1, high=5, ge=1, description="passes per round")
        center: Literal["previous", "zero"] = Field(
            "previous", description="first center of a round: the last round's result, or zero"
        )

    settings: Settings

    def extra(self, like: Tensor) -> dict[str, Tensor]:
        return {"center": torch.zeros_like(like)} if self.settings.center == "previous" else {}

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        v, factors = extra.get("center", torch.zeros_like(D[0])), torch.ones_like(p)
        for _ in range(self.settings.iterations):
            factors = (self.settings.radius / to_point(D, v)).clamp_(max=1.0)
            v = (1 - (p * factors).sum()) * v + weighted_sum(p * factors, D)
        if "center" in extra:
            extra["center"].copy_(v)
        return Combined(v, factors)
