"""The median of every coordinate."""

from torch import Tensor

from fedtide.methods.aggregation.base import Combined, Rule
from fedtide.methods.aggregation.trimmed_mean import middle


class Median(Rule):
    """The median of every coordinate (Yin et al. 2018), the mean of the middle two of an even number; weights do not count.

    A participant's kept share is that of the coordinates in which its value is a middle one.
    """

    statistics = "rule"

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        return middle(D, (len(D) - 1) // 2)
