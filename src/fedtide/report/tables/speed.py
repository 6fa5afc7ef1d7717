"""Speed and stability of learning, as reported in the FedDyn lineage (Zhou et al. 2025, Tables 1 to 6).

``accuracy`` is float [R], a share in [0, 1] for each round, NaN where the model was not evaluated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedtide.records.measures import metrics


@dataclass(frozen=True)
class RoundsToTarget:
    """Rounds to a target; a run that does not reach it counts with its length T, shown as ``>T``."""

    rounds: int
    reached: bool

    def __str__(self) -> str:
        return f"{self.rounds}" if self.reached else f">{self.rounds}"

    def speed_up(self, reference: RoundsToTarget) -> float:
        """Rounds of the reference over ours; a bound if one of them did not reach the target."""
        return reference.rounds / self.rounds


def rounds_to_target(accuracy: ArrayLike, target: float) -> RoundsToTarget:
    """First round, counted from 1, with at least the accuracy ``target``."""
    first = metrics.rounds_to_target(accuracy, target)
    return RoundsToTarget(int(first), True) if math.isfinite(first) else RoundsToTarget(np.size(accuracy), False)


def last_rounds(accuracy: ArrayLike, rounds: int = 50) -> tuple[float, float]:
    """Mean and *population* standard deviation over the evaluated rounds among the last ``rounds`` of one run."""
    last = np.asarray(accuracy, dtype=np.float64)[-rounds:]
    kept = last[~np.isnan(last)]
    return (float(kept.mean()), float(kept.std())) if len(kept) else (math.nan, math.nan)
