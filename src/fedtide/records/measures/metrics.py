"""Metrics of a run's accuracies.

All functions take one value per round: ``accuracy`` float [R], a share in [0, 1], NaN where the model was not evaluated;
``session`` int [R], the session's number. Rounds without evaluation are skipped. A result without a value (nothing
evaluated, no session change) is NaN.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedtide.core.array_types import Bools, Floats


def final(accuracy: ArrayLike) -> float:
    """Accuracy of the last evaluated round."""
    values = _evaluated(accuracy)
    return float(values[-1]) if len(values) else math.nan


def best(accuracy: ArrayLike) -> float:
    """Highest accuracy of any round."""
    values = _evaluated(accuracy)
    return float(values.max()) if len(values) else math.nan


def mean_of_last(accuracy: ArrayLike, rounds: int) -> float:
    """Mean over the evaluated rounds among the last ``rounds`` rounds."""
    return mean(np.asarray(accuracy, dtype=np.float64)[-rounds:])


def at_period_ends(values: ArrayLike, session: ArrayLike) -> Floats:
    """The last evaluated value of each session, [sessions]; NaN where a session has none."""
    return np.array([final(part) for part in _sessions(values, session)], dtype=np.float64)


def mean_next(values: ArrayLike, session: ArrayLike, rows: ArrayLike | None = None) -> float:
    """Mean over the periods of a score on the next period at the end of each, equally weighted.

    The last period has no next one and does not count; nor do periods on whose ``rows`` the score is not defined, such as the
    AUROC of rows of one class, and any score of no rows. NaN if another one has no value, since runs would not be comparable.
    """
    ends = at_period_ends(values, session)[:-1]
    if rows is not None:
        ends = ends[np.isfinite(ends) | np.isnan(at_period_ends(rows, session)[:-1])]
    return float(ends.mean()) if len(ends) else math.nan


def undefined(values: ArrayLike, session: ArrayLike, rows: ArrayLike) -> Bools:
    """Whether a period, but for the last, has ``rows`` of the next one at its end, but no value, [sessions - 1]."""
    ends, counted = (at_period_ends(each, session)[:-1] for each in (values, rows))
    return np.isnan(ends) & (counted > 0)


def drops(accuracy: ArrayLike, session: ArrayLike) -> Floats:
    """Drop at each session change, [sessions - 1]: last accuracy of a session minus first of the next."""
    values = [_evaluated(part) for part in _sessions(accuracy, session)]
    return np.array([a[-1] - b[0] if len(a) and len(b) else math.nan for a, b in pairwise(values)], dtype=np.float64)


def transition_accuracy(accuracy: ArrayLike, session: ArrayLike, sessions: Collection[int], rounds: int = 10) -> float:
    """Mean accuracy of the first ``rounds`` rounds of the numbered ``sessions``, equally weighted."""
    parts = enumerate(_sessions(accuracy, session), start=1)
    return mean(np.array([mean(part[:rounds]) for number, part in parts if number in sessions], dtype=np.float64))


def rounds_to_target(accuracy: ArrayLike, target: float) -> float:
    """First round, counted from 1, with at least the accuracy ``target``; inf if there is none."""
    reached = np.flatnonzero(np.asarray(accuracy, dtype=np.float64) >= target)
    return float(reached[0] + 1) if len(reached) else math.inf


def bytes_to_target(accuracy: ArrayLike, traffic: ArrayLike, target: float) -> float:
    """Bytes sent until ``target`` was reached, given the cumulative ``traffic`` [R]; inf if it was not."""
    rounds = rounds_to_target(accuracy, target)
    return float(np.asarray(traffic, dtype=np.float64)[int(rounds) - 1]) if math.isfinite(rounds) else math.inf


def median_spent(spent: ArrayLike, reached: ArrayLike) -> tuple[float, bool]:
    """Median [runs] of what was spent until a target, and whether it is one: else a lower bound.

    A run that has not ``reached`` it has spent more than all that have, at least what it has ``spent`` in all.
    """
    values, known = np.asarray(spent, dtype=np.float64), np.asarray(reached, dtype=bool)
    middle = np.lexsort((values, ~known))[(len(values) - 1) // 2 : len(values) // 2 + 1]
    return float(values[middle].mean()), bool(known[middle].all())


def score_at(accuracy: ArrayLike, elapsed: ArrayLike, second: float) -> float:
    """Accuracy at a simulated second, of the last model evaluated until then; ``elapsed`` [R] is when each round ended.

    NaN before the first evaluation, and after the end of the run, of which nothing is known.
    """
    values, ends = np.asarray(accuracy, dtype=np.float64), np.asarray(elapsed, dtype=np.float64)
    known = values[(ends <= second) & ~np.isnan(values)]
    return float(known[-1]) if len(known) and second <= ends[-1] else math.nan


def seconds_to_target(accuracy: ArrayLike, elapsed: ArrayLike, target: float) -> float:
    """Second at which the first evaluated model reached ``target``; arguments as in :func:`score_at`; inf if none did."""
    return bytes_to_target(accuracy, elapsed, target)


def mean(values: ArrayLike) -> float:
    """Mean of the values that are not NaN."""
    kept = _evaluated(values)
    return float(kept.mean()) if len(kept) else math.nan


def mean_std(values: ArrayLike) -> tuple[float, float]:
    """Mean and sample standard deviation (divisor n - 1, NaN for one value) over the seeds, ignoring NaN."""
    kept = _evaluated(values)
    return mean(kept), float(kept.std(ddof=1)) if len(kept) > 1 and np.isfinite(kept).all() else math.nan


def _evaluated(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array[~np.isnan(array)]


def _sessions(accuracy: ArrayLike, session: ArrayLike) -> list[Floats]:
    changes = np.flatnonzero(np.diff(np.asarray(session))) + 1
    return np.split(np.asarray(accuracy, dtype=np.float64), changes)


GROUPS = ("head", "middle", "tail")
GROUP_METRICS = (*GROUPS, "worst")


def class_groups(settings: Mapping[str, Any], classes: int) -> dict[str, list[int]]:
    """Classes of ``head`` (the ceil(0.3 L) most frequent), ``tail`` (as many of the rarest) and ``middle``; empty if balanced.

    ``settings`` are those of a run, flat; ``long_tail.order`` lists the L ``classes`` by frequency.
    """
    if settings.get("long_tail.imbalance") in (None, 1.0):
        return {}
    order = settings.get("long_tail.order")
    ranks = list(range(classes)) if order is None else list(order)
    size = math.ceil(0.3 * classes)
    return {"head": ranks[:size], "middle": ranks[size : classes - size], "tail": ranks[classes - size :]}


def group_accuracies(per_class: Sequence[float], settings: Mapping[str, Any]) -> dict[str, float]:
    """Mean accuracy of each group and accuracy of the worst class [share], from accuracies by class (NaN: no test samples)."""
    values = np.asarray(per_class, dtype=np.float64)
    found = class_groups(settings, len(values))
    if not found or np.isnan(values).all():
        return dict.fromkeys(GROUP_METRICS, math.nan)
    return {name: mean(values[found[name]]) for name in GROUPS} | {"worst": float(np.nanmin(values))}
