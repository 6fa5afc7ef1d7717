"""Scores on the next period at the end of each, from the rounds of a run."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedtide.core.array_types import Floats
from fedtide.records.measures import metrics
from fedtide.settings.scores import ACCURACY, Score, score_of

BEFORE = 3
"""Number of last periods, at most, with whose mean a period is compared."""

ERRORS = 3.0
"""Standard errors below that mean at which a period raises the alarm."""


class Alarm(NamedTuple):
    """A fall: the position of the period that is tested, its score, the mean before it, and the distance."""

    period: int
    value: float
    before: float
    errors: float


def alarms(accuracy: Floats, rows: Floats) -> list[Alarm]:
    """Periods whose accuracy lies more than :data:`ERRORS` standard errors below the mean of the last ones.

    The accuracy a of a period, measured before it is trained on, is compared with the mean m of those of the up to
    :data:`BEFORE` periods before it. Rows count as independent: the standard error of a - m is the root of m (1 - m) / n plus
    the mean's variance, the sum of a_i (1 - a_i) / n_i over its J periods, divided by J^2. This tells sampling noise from
    change; it is no detector of drift, since people's rows are not independent.

    Args:
        accuracy: of each period at the end of the one before, a share, [periods]; NaN where not evaluated.
        rows: that each was measured on.
    """
    found = []
    for place in range(1, len(accuracy)):
        last = slice(max(0, place - BEFORE), place)
        before, own = float(np.mean(accuracy[last])), float(accuracy[place])
        spread = np.sum(accuracy[last] * (1 - accuracy[last]) / rows[last]) / len(accuracy[last]) ** 2
        error = math.sqrt(before * (1 - before) / rows[place] + spread)
        if before - own > ERRORS * error:
            found.append(Alarm(place, own, before, (before - own) / error if error else math.inf))
    return found


def means_next(history: Sequence[Mapping[str, str]], split: str) -> dict[str, float | None]:
    """``mean_next_<score>`` of every score on the next period in the rounds of a run; empty if it is not evaluated on any."""
    columns = [
        name for name in (history[0] if history else ()) if name.startswith(f"{split}_") and name.endswith("_next")
    ]
    found: dict[str, float | None] = {}
    session = [int(row["session"]) for row in history]
    for name in columns:
        if name != rows_column(split):
            mean = metrics.mean_next(_values(history, name), session, _values(history, rows_column(split)))
            found[Score(name.removeprefix(f"{split}_")).mean_next] = mean if math.isfinite(mean) else None
    return found


def undefined_in(history: Sequence[Mapping[str, str]]) -> dict[int, list[Score]]:
    """By period, a session from 0, the scores that its test rows do not define: ``mean_next_<score>`` is without it."""
    found: dict[int, list[Score]] = {}
    session = [int(row["session"]) for row in history]
    names = [name for name in (history[0] if history else ()) if name.startswith("test_") and name.endswith("_next")]
    for name in names:
        score = score_of(name)
        twice = score.of_served.name != score.name and f"test_{score.of_served.name}" in names
        if name != rows_column() and not twice and not score.over_clients:
            lacking = metrics.undefined(_values(history, name), session, _values(history, rows_column()))
            for place in np.flatnonzero(lacking).tolist():
                found.setdefault(place + 1, []).append(score)
    return dict(sorted(found.items()))


def _values(history: Sequence[Mapping[str, str]], name: str) -> list[float]:
    return [float(row.get(name) or "nan") for row in history]


def rows_column(split: str = "test") -> str:
    """The column of the history with the number of rows of the next period."""
    return f"{split}_rows_next"


def alarms_in(history: Sequence[Mapping[str, str]]) -> list[Alarm]:
    """Alarms of a run by its test accuracy; the position of a period is its session, from 0. None without such scores."""
    either = [f"test_{score.name}" for score in (ACCURACY.next.of_served, ACCURACY.next)]
    columns = [name for name in either if history and name in history[0]]
    if not columns:
        return []
    session = [int(row["session"]) for row in history]
    accuracy, rows = (
        metrics.at_period_ends(_values(history, name), session)[:-1] for name in (columns[0], rows_column())
    )
    scored = np.flatnonzero(rows > 0)
    return [each._replace(period=int(scored[each.period]) + 1) for each in alarms(accuracy[scored], rows[scored])]
