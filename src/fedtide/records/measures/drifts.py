"""Accuracy around drifts: how far it falls when concepts of clients change, and how long it takes to recover.

All functions take one value per round: ``changed`` [R], the clients present whose concept has changed in the round
(:data:`COLUMN` of the history; NaN without drift), and ``accuracy`` float [R], a share, NaN where not evaluated.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedtide.records.measures.metrics import mean

COLUMN = "concepts_changed"

BEFORE = 5
"""Rounds before an event whose mean is what the accuracy falls from."""

DIP = 10
"""Rounds, from the event on, of which the lowest accuracy is the dip."""

TOLERANCE = 0.01
"""What may be missing to that mean in a round that has recovered."""


class Event(NamedTuple):
    """One drift, rounds counted from 0.

    Attributes:
        start: first round in which concepts changed. end: start of the next event, or the number of rounds.
        before: mean of the evaluated ones of the last :data:`BEFORE` rounds. dip: lowest accuracy of the first :data:`DIP`
            rounds up to the end. Both NaN without an evaluated round.
        rounds: from the start to the first recovered one, counted from the dip on, since a gradual change lowers accuracy
            later than in its first round; 0 if the dip is no lower than a recovered round, inf if none is recovered by the end.
    """

    start: int
    end: int
    before: float
    dip: float
    rounds: float


def starts(changed: ArrayLike) -> list[int]:
    """Rounds, from 0, in which events start; changes in consecutive rounds, as of a gradual drift, are one event."""
    now = np.asarray(changed, dtype=np.float64) > 0
    return np.flatnonzero(now & ~np.concatenate([[False], now[:-1]])).tolist() if len(now) else []


def events(accuracy: ArrayLike, changed: ArrayLike) -> list[Event]:
    """The events of a run; none before its second round."""
    found: list[Event] = []
    values = np.asarray(accuracy, dtype=np.float64)
    for start, end in pairwise([*starts(changed), len(values)]):
        before, after = mean(values[max(0, start - BEFORE) : start]), values[start:end]
        first = after[:DIP]
        if math.isnan(before) or np.isnan(first).all():
            found.append(Event(start, end, before, mean(first[:0]), math.nan))
            continue
        least = int(np.nanargmin(first))
        goal = before - TOLERANCE
        recovered = np.flatnonzero(after[least:] >= goal)
        if first[least] >= goal:
            rounds = 0.0
        elif len(recovered):
            rounds = float(least + recovered[0])
        else:
            rounds = math.inf
        found.append(Event(start, end, before, float(first[least]), rounds))
    return found


def after_first(accuracy: ArrayLike, changed: ArrayLike) -> float:
    """Mean accuracy from the first event on; NaN without one."""
    begun = starts(changed)
    return mean(np.asarray(accuracy, dtype=np.float64)[begun[0] :]) if begun else math.nan


def means(found: Sequence[Event]) -> dict[str, float]:
    """Means over events: ``before``, ``dip``, ``drop``, ``recovered`` (share of the events) and ``rounds`` of these."""
    known = [event for event in found if not math.isnan(event.rounds)]
    recovered = [event.rounds for event in known if math.isfinite(event.rounds)]
    return {
        "before": mean([event.before for event in known]),
        "dip": mean([event.dip for event in known]),
        "drop": mean([event.before - event.dip for event in known]),
        "recovered": len(recovered) / len(known) if known else math.nan,
        "rounds": mean(recovered),
    }


def summary(history: Sequence[Mapping[str, str]], column: str) -> dict[str, float | None]:
    """Entries of a run's summary: number of ``drifts``, :func:`means` and the mean after the first; empty without drift.

    ``drift_rounds`` to recover is over all events, ``drift_rounds_recovered`` over those that have recovered. ``None`` where
    nothing was evaluated, and for the rounds if an event, or every one, has not recovered.
    """
    if not history or COLUMN not in history[0]:
        return {}
    accuracy, changed = ([float(row.get(name) or "nan") for row in history] for name in (column, COLUMN))
    found = events(accuracy, changed)
    values = {f"drift_{name}": value for name, value in means(found).items()}
    values["drift_rounds_recovered"] = values["drift_rounds"]
    if values["drift_recovered"] < 1:
        values["drift_rounds"] = math.inf
    values["drift_after"] = after_first(accuracy, changed)
    return {"drifts": len(found), **{name: value if math.isfinite(value) else None for name, value in values.items()}}
