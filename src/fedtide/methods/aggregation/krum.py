"""The updates that are closest to others."""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pdist

from fedtide.methods.aggregation.base import NUMBERS, Combined, Rule, RuleSettings, shares
from fedtide.training.engine.flat import weighted_sum


class Krum(Rule):
    """The updates that are closest to others: one (Krum) or the weighted mean of several (multi-Krum, Blanchard et al. 2017).

    The score of one of n updates is the sum of the n - f - 2 smallest squared distances from others; of equal scores the
    client with the lower id is kept. In rounds with fewer than 2 f + 3 participants, f is the largest number that they allow;
    with fewer than three, all are kept. A participant's kept share is 1 or 0.
    """

    class Settings(RuleSettings):
        name: str = "krum"
        f: int = Field(ge=0, description="upper bound on the attackers among the participants of a round")
        keep: int | None = Field(1, ge=1, description="number of updates kept; null: n - f - 2 of n")

    settings: Settings
    statistics = "kept"

    def survives(self, count: int) -> int:
        return max(0, min(self.settings.f, (count - 3) // 2))

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        n = len(D)
        if n < 3:
            return Combined(weighted_sum(p, D), torch.ones_like(p))
        close = n - 2 - self.survives(n)
        scores = squared(D).fill_diagonal_(torch.inf).sort(1).values[:, :close].sum(1)
        best = scores.sort(stable=True).indices[: self.settings.keep or close].sort().values
        kept = torch.zeros_like(p).index_fill_(0, best, 1.0)
        return Combined(weighted_sum(shares(p[best]), D[best]), kept)


def squared(D: Tensor) -> Tensor:
    """Squared distances [n, n] of the rows of ``D`` [n, d] from one another, from differences.

    A Gram matrix would break ties at random, and lose close rows to rounding.
    """
    found, (first, second) = D.new_zeros(len(D), len(D)), torch.triu_indices(len(D), len(D), 1, device=D.device)
    for part in torch.split(D, max(1, NUMBERS // len(D)), dim=1):
        found[first, second] += pdist(part).square_()
    return found + found.T
