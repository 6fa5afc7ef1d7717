"""What the methods of continual federated learning share: how much of the past they lose, and the server's step."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import Round
from fedtide.settings.choices import WeightingChoice, choice_field


class ContinualSettings(AveragingSettings):
    weighting: WeightingChoice = choice_field("uniform", "how participants are weighted")
    measure_every: int = Field(
        0, ge=0, description="rounds between records of the information loss, plus the last; 0: never"
    )


class Continual(Averaging):
    """A method that approximates past objectives f_{tau,i} by F_{tau,i} (Guo, Lin and Tang 2021).

    The information loss is measured at w_t, the model sent in round t, over all rounds tau <= t and their participants i::

        mean_{tau, i} | grad f_{tau,i}(w_t) - grad F_{tau,i}(w_t) |                                                 (eq. 3)

    It needs the data of the past, so only the simulator can measure it. Round t itself is included, and so is what a method
    has forgotten since.
    """

    settings: ContinualSettings

    def extra(self) -> dict[str, Tensor]:
        """``visits``: client and subset of every participation so far, int64 [n, 2], while the loss is measured."""
        return {"visits": torch.zeros(0, 2, dtype=torch.int64)}

    def visit(self, r: Round) -> None:
        """Remember which data this round used."""
        if self.settings.measure_every:
            visited = torch.tensor([r.ids, r.shard_ids]).T.to(r.extra["visits"])
            r.extra["visits"] = torch.cat([r.extra["visits"], visited])

    @abstractmethod
    def remembered(self, r: Round, visits: list[tuple[int, int]]) -> Tensor:
        """grad F(w_t) [n, d] of each visit, in order; NaN where F leaves an entry open."""

    def information_loss(self, r: Round) -> float:
        """In round t."""
        visits = [(client, subset) for client, subset in r.extra["visits"].tolist()]
        known = {subset: place for place, subset in enumerate(dict.fromkeys(subset for _, subset in visits))}
        true = r.services.full_gradient(r.w, [r.services.positions(subset) for subset in known])
        gap = true[[known[subset] for _, subset in visits]] - self.remembered(r, visits)
        return float(torch.linalg.vector_norm(gap.nan_to_num(0.0), dim=-1).mean())  # eq. 3

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """``information_loss``, NaN in rounds without a measurement."""
        every = self.settings.measure_every
        if not every:
            return {}
        due = (r.t + 1) % every == 0 or r.t + 1 == self.problem.rounds
        return {"information_loss": self.information_loss(r) if due else math.nan}
