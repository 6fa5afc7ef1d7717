"""The median of every coordinate."""

from __future__ import annotations

from torch import Tensor

from fedtide.methods.aggregation._ranks import middle
from fedtide.methods.aggregation.base import Combined, Rule, RuleSettings


class Median(Rule):
    """The median of every coordinate (Yin et al. 2018), the mean of the middle two of an even number; weights do not count.

    A participant's kept share is that of the coordinates in which its value is a middle one.
    """

    class Settings(RuleSettings):
        name: str = "median"

    statistics = "rule"

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        return middle(D, (len(D) - 1) // 2)
