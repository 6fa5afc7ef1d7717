"""FedWCM's class scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Imbalance:
    """How far all clients' data together are from the target, float64 on the CPU.

    Attributes:
        p, target: [L] class frequencies. delta: [L] what a sample of a class scores (eq. 3).
        L1: sum of |target - p|, whatever the score. T: temperature 1 / (L L1).
        scores: [K] of all clients. mean: of the scores.
    """

    p: Tensor
    target: Tensor
    delta: Tensor
    L1: float
    T: float
    scores: Tensor
    mean: float

    @staticmethod
    def of(counts: Tensor, target: Tensor, score: str, total: Tensor | None = None) -> Imbalance:
        """From the class counts [K, L] of all clients, and their sum [L] as the server knows it; empty ones have no score."""
        counts = counts[counts.sum(1) > 0]
        total = counts.sum(0) if total is None else total
        p = total / total.sum()
        gap = target - p
        delta = gap.abs() if score == "abs" else gap.clamp(min=0)
        L1 = float(gap.abs().sum())
        scores = counts @ delta / counts.sum(1)
        return Imbalance(p, target, delta, L1, 1 / (len(p) * L1) if L1 else math.inf, scores, float(scores.mean()))

    def score(self, counts: Tensor) -> Tensor:
        """s_k [C] = sum_c delta_c n_kc / n_k (eq. 4) of clients with class counts [C, L]."""
        known = counts.to(self.delta)
        return known @ self.delta / known.sum(1)

    def q(self, scores: Tensor) -> float:
        """Mean score of a round's participants over that of all clients; one if nobody scores."""
        return float(scores.mean()) / self.mean if self.mean else 1.0
