"""Alarms of a detector against the true drifts.

Both are given as one value per round: ``alarm`` [R], 1 where there is one (:data:`COLUMN` of the history), and ``changed`` [R]
as in :mod:`fedtide.records.measures.drifts`. Rounds are counted from 0.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedtide.records.measures import drifts
from fedtide.records.measures.metrics import mean

COLUMN = "alarm"

HORIZON = 10
"""Rounds, from the last change of a drift on, in which an alarm counts as its detection."""


class Detections(NamedTuple):
    """What the alarms of a run were worth.

    Attributes:
        alarms: rounds with one. delays: of each drift, rounds from its start to the first alarm, NaN without one by the
            :data:`HORIZON` or the next drift. false: alarms while no concept has changed for :data:`HORIZON` rounds.
    """

    alarms: list[int]
    delays: list[float]
    false: int

    @property
    def detected(self) -> int:
        return sum(not math.isnan(delay) for delay in self.delays)

    @property
    def delay(self) -> float:
        """Mean over the detected drifts, NaN without one."""
        return mean([delay for delay in self.delays if not math.isnan(delay)])


def detections(alarm: ArrayLike, changed: ArrayLike) -> Detections:
    """The alarms of a run against its drifts; with ``changed`` NaN there are none."""
    found = np.flatnonzero(np.asarray(alarm, dtype=np.float64) > 0)
    now = np.asarray(changed, dtype=np.float64) > 0
    near = np.convolve(now, np.ones(HORIZON))[: len(now)] > 0 if len(now) else now
    delays = []
    for start, end in pairwise([*drifts.starts(changed), len(now)]):
        first = [t - start for t in found if start <= t < end and near[t]][:1]
        delays.append(float(first[0]) if first else math.nan)
    return Detections(found.tolist(), delays, int((~near[found]).sum()))


def summary(history: Sequence[Mapping[str, str]]) -> dict[str, float | None]:
    """Entries of a run's summary; empty without a detector.

    ``drift_alarms``, ``drift_false_alarms``: how many; ``drift_detected``: how many drifts were; ``drift_delay``: mean rounds
    until they were, None if none was.
    """
    if not history or COLUMN not in history[0]:
        return {}
    found = detections(*([float(row.get(name) or "nan") for row in history] for name in (COLUMN, drifts.COLUMN)))
    values = {
        "drift_alarms": len(found.alarms),
        "drift_detected": found.detected,
        "drift_false_alarms": found.false,
    }
    return {**values, "drift_delay": found.delay if found.detected else None}
