"""A rule that is not linear."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtide.methods.aggregation.base import Combined, Rule


class Middle(Rule):
    """The lower median of every coordinate."""

    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        found = D.median(0)
        kept = torch.zeros_like(D).scatter_(0, found.indices.unsqueeze(0), 1.0).mean(1)
        return Combined(found.values, kept)
