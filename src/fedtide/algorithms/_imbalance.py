"""FedWCM's class scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Imbalance:
    """How far the data of all clients together are from the target, float64 on the CPU.

    Attributes:
        p, target: [L] class frequencies. delta: [L] what a sample of a class scores (eq. 3).
        L1: sum of |target - p|, whatever the score. T: temperature 1 / (L L1).
    """

    p: Tensor
    target: Tensor
    delta: Tensor
    L1: float
    T: float

    @staticmethod
    def of(total: Tensor, target: Tensor, score: str) -> Imbalance:
        """From the summed class counts [L]."""
        p = total / total.sum()
        gap = target - p
        delta = gap.abs() if score == "abs" else gap.clamp(min=0)  # eq. 3
        L1 = float(gap.abs().sum())
        return Imbalance(p, target, delta, L1, 1 / (len(p) * L1) if L1 else math.inf)

    def scores(self, counts: Tensor) -> Tensor:
        """s_k [C] = sum_c delta_c n_kc / n_k of clients with class counts [C, L], none of them empty."""
        known = counts.to(self.delta)
        return known @ self.delta / known.sum(1)  # eq. 4


def relative_score(scores: Tensor, population_scores: Tensor) -> float:
    """q: mean score of a round's participants over that of all clients; one if nobody scores."""
    mean = float(population_scores.mean())
    return float(scores.mean()) / mean if mean else 1.0
