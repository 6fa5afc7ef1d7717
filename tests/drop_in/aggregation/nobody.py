"""A rule that trusts nobody."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtide.methods.aggregation.base import Combined, Rule


class Nobody(Rule):
    """No update counts."""

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        return Combined(torch.zeros_like(D[0]), torch.zeros_like(p))
