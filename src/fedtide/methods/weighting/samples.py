"""Weights proportional to the number of samples."""

from torch import Tensor

from fedtide.methods.weighting.base import Weighting


class Samples(Weighting):
    """Each participant counts by its number of samples, n_k / sum n_j (McMahan et al. 2017)."""

    def weights(self, n: Tensor, label_counts: Tensor) -> Tensor:
        return n / n.sum()
