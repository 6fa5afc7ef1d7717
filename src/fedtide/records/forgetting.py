"""Forgetting of a run, from accuracies per class and the classes held over time.

A *period* is a session, or a round where data drifts within one. Its data is described by the class shares of the samples
that participants held; the accuracy on such data is the mean of the class accuracies with these shares:
``A[s, u] = sum_c share_u(c) accuracy_s(c)``, with the model at the end of period s.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedtide.core.array_types import Floats, Ints
from fedtide.records.metrics import mean


class Forgetting(NamedTuple):
    """Over S periods; shares in [-1, 1], NaN without an earlier period.

    Attributes:
        seen: accuracy of the last model on the data of all periods, equally weighted: mean_u A[S, u].
        backward: backward transfer, mean over u < S of ``A[S, u] - A[u, u]``; negative if later training hurt.
        forgotten: mean over u < S of ``max_{u <= s} A[s, u] - A[S, u]``, never negative.
    """

    seen: float
    backward: float
    forgotten: float


NOTHING = Forgetting(math.nan, math.nan, math.nan)


def accuracy_matrix(accuracy: Floats, held: Floats, period: Ints) -> Floats:
    """A [S, S].

    Args:
        accuracy: [R, L] of each class after each round; NaN rows where the model was not evaluated, NaN columns for classes
            without test samples.
        held: [R, L] samples of each class that the participants of each round held.
        period: [R], ascending. One without an evaluated round is merged into the next, or dropped if it is the last.
    """
    evaluated = np.flatnonzero(~np.isnan(accuracy).all(axis=1))
    tested = ~np.isnan(accuracy).all(axis=0)
    accuracy, held = accuracy[:, tested], np.nan_to_num(held[:, tested])
    last = np.flatnonzero(np.append(np.diff(period) != 0, True))
    ends: list[int] = []
    for begin, end in zip(np.concatenate([[-1], last[:-1]]), last, strict=True):
        inside = evaluated[(evaluated > begin) & (evaluated <= end)]
        ends += [int(inside[-1])] if len(inside) else []
    if not ends:
        return np.zeros((0, 0))
    # A period includes its data from after its last evaluation.
    bounds = [0, *(int(last[np.searchsorted(last, end)]) + 1 for end in ends)]
    amounts = np.array([held[a:b].sum(axis=0) for a, b in pairwise(bounds)])
    shares = amounts / np.maximum(amounts.sum(axis=1, keepdims=True), 1)
    return np.asarray(accuracy[ends] @ shares.T, dtype=np.float64)


def forgetting(accuracy: Floats, held: Floats, period: Ints) -> Forgetting:
    """All measures; arguments as in :func:`accuracy_matrix`."""
    A = accuracy_matrix(accuracy, held, period)
    if len(A) == 0:
        return NOTHING
    past = range(len(A) - 1)
    return Forgetting(
        seen=float(A[-1].mean()),
        backward=mean([A[-1, u] - A[u, u] for u in past]),
        forgotten=mean([A[u:, u].max() - A[-1, u] for u in past]),
    )
