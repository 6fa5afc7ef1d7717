"""What erased clients have left, over the rounds after a request: when the others are served as well, and what comes back.

All functions take one value per round, float [R], NaN where not evaluated, and the round ``at`` of the request, from 0. A value
``step`` is right after the request, before the round. Measures: :mod:`fedtide.federation.scoring.erased`.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

COLUMN, PREFIX, COSTS = "erased", "erased_", "erase_"
"""The column of the history with the number of clients erased so far, and what those of measures and of costs begin with."""

MEASURES = (
    *("excess", "memory_left", "gap_left", "remembered", "auc", "auc_low", "auc_high", "auc_counterfactual"),
    *("auc_calibrated", "retained_change", "retained_worst", "newcomers_change"),
)
"""Those whose last value is in the summary of a run."""

MARGIN = 0.01
"""What the accuracy of the other clients may be below the counterfactual's where it counts as reached."""


def request(erased: ArrayLike) -> int | None:
    """The round of the last request, from the number of clients erased so far [R]; None before the first one."""
    count = np.nan_to_num(np.asarray(erased, dtype=np.float64))
    found = np.flatnonzero(np.diff(count, prepend=0.0) > 0)
    return int(found[-1]) if len(found) else None


def reached(change: ArrayLike, step: float, at: int) -> int | None:
    """Fewest rounds after a request until the model serves the other clients as well as the counterfactual, up to the margin.

    ``change``: accuracy on the test samples of all of them, minus that of the counterfactual after the same round. 0: right
    after the request; None: in no evaluated round.
    """
    values = np.array([step, *np.asarray(change, dtype=np.float64)[at:]])
    found = np.flatnonzero(values >= -MARGIN)
    return int(found[0]) if len(found) else None


def resurrection(excess: ArrayLike, step: float, start: ArrayLike, at: int) -> float:
    """What the first session that starts after a request brings back of the erased clients; NaN without one.

    The excess at its ``start`` minus that at the end of the session before. If the session starts with the round of the
    request, which comes first, that is the model right after the request.
    """
    ends, starts = (np.asarray(values, dtype=np.float64) for values in (excess, start))
    found = at + np.flatnonzero(~np.isnan(starts[at:]))
    if not len(found):
        return math.nan
    first = int(found[0])
    return float(starts[first] - (step if first == at else ends[first - 1]))


def last_request(columns: Mapping[str, ArrayLike]) -> dict[str, float | None]:
    """``reached`` and ``resurrection`` of the last request, from columns of a history without :data:`PREFIX`."""
    at, known = request(columns[""]), {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    if at is None:
        return {"reached": None, "resurrection": None}
    change, excess = ((known[name], float(known[f"{name}_step"][at])) for name in ("retained_pooled_change", "excess"))
    back = resurrection(*excess, known["excess_start"], at)
    return {"reached": reached(*change, at), "resurrection": None if math.isnan(back) else back}


COMPARED = ("retained_pooled_change", "retained_pooled_change_step", "excess", "excess_step", "excess_start")
"""Columns of :func:`last_request`, besides the empty name: the clients erased so far."""


def summary(history: Sequence[Mapping[str, str]]) -> dict[str, float | None]:
    """Entries of a run's summary; empty without requests.

    ``erase_*``: costs of the requests. Where runs without the clients are compared: ``erased_*``, the last values of
    :data:`MEASURES`, None where never defined, and :func:`last_request`, None where not reached or without a session's start.
    """
    if not history or COLUMN not in history[0]:
        return {}

    def column(name: str) -> list[float]:
        return [float(row.get(name) or "nan") for row in history]

    found: dict[str, float | None] = {
        name: int(float(value)) for name, value in history[-1].items() if name.startswith(COSTS)
    }
    columns = {name: column(PREFIX + name) for name in {*MEASURES, *COMPARED}} | {"": column(COLUMN)}
    if all(math.isnan(value) for name, values in columns.items() if name for value in values):
        return found
    for name in MEASURES:
        known = [value for value in columns[name] if not math.isnan(value)]
        found[PREFIX + name] = known[-1] if known else None
    return found | {PREFIX + name: value for name, value in last_request(columns).items()}
