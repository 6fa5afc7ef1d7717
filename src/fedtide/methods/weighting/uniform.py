"""Equal weights."""

import torch
from torch import Tensor

from fedtide.methods.weighting.base import Weighting


class Uniform(Weighting):
    """Each participant counts the same, 1 / |S|."""

    def weights(self, n: Tensor, label_counts: Tensor) -> Tensor:
        return torch.full_like(n, 1.0 / len(n))
