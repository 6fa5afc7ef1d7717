"""Alarms of a detector: when they were and, where a drift was planted, what they were worth.

They are given as one value per round: ``alarm`` [R], 1 where there is one (:data:`COLUMN` of the history), and ``changed`` [R]
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

CLIENTS = "alarmed_clients"
"""The column of the history with the number of clients whose detectors have alarmed, with ``watch: clients``."""

HORIZON = 10
"""Rounds, from the last change of a drift on, in which an alarm counts as its detection."""


_MOST_LISTED = 5


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
    """The alarms of a run against its drifts."""
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

    ``alarms``: how many. Where a drift was planted, ``drift_false_alarms``: how many are false; ``drift_detected``: how many
    drifts were detected; ``drift_delay``: mean rounds until they were, None if none was.
    """
    if not history or COLUMN not in history[0]:
        return {}
    alarm, changed = ([float(row.get(name) or "nan") for row in history] for name in (COLUMN, drifts.COLUMN))
    found = detections(alarm, changed)
    if drifts.COLUMN not in history[0]:
        return {"alarms": len(found.alarms)}
    values = {"alarms": len(found.alarms), "drift_detected": found.detected, "drift_false_alarms": found.false}
    return {**values, "drift_delay": found.delay if found.detected else None}


def listed(alarms: Sequence[tuple[int, str]]) -> str:
    """``1 alarm: round 62, 2025-07``, of the rounds (from 1) and the names of their periods, empty without periods."""
    if not alarms:
        return "no alarms"
    shown = [f"round {number}, {name}" if name else f"round {number}" for number, name in alarms[:_MOST_LISTED]]
    more = f"; and {len(alarms) - _MOST_LISTED} more" if len(alarms) > _MOST_LISTED else ""
    return f"{len(alarms)} alarm{'s' * (len(alarms) > 1)}: {'; '.join(shown)}{more}"
