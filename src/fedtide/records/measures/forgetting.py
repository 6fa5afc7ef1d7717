"""Forgetting of a run, from scores of the model at the end of period s on the data of period u: A[s, u], u <= s.

*Measured* where sessions have test samples of their own: A[s, u] is the score on those of session u.

*Estimated* elsewhere, from accuracies per class. A period is a session, or a round where data drifts within one. Its data is
described by the class shares of the samples that participants held: ``A[s, u] = sum_c share_u(c) accuracy_s(c)``. That assumes
that samples of a class are the same in all periods; where the relation of inputs and labels changes, it does not hold.
"""

import math
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedtide.core.array_types import Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.records.measures import metrics
from fedtide.settings.scores import Score


class Forgetting(NamedTuple):
    """Over S periods; NaN without an earlier one.

    Attributes:
        seen: score of the last model on the data of all periods, equally weighted: mean_u A[S, u].
        backward: backward transfer, mean over u < S of ``A[S, u] - A[u, u]``; negative if later training hurt. Lopez-Paz &
            Ranzato, "Gradient Episodic Memory for Continual Learning" (2017).
        forgotten: mean over u < S of ``max_{u <= s < S} A[s, u] - A[S, u]``; negative if the last model is the best one.
            Chaudhry et al., "Riemannian Walk for Incremental Learning" (2018), whose maximum includes models from before
            period u.
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


def forgetting(A: Floats, sign: int = 1) -> Forgetting:
    """All measures of A [S, S], whose part above the diagonal does not matter.

    ``sign`` is -1 for a score that is better if lower; ``backward`` is still negative, and ``forgotten`` positive, if later
    training hurt. Sessions in which the score is undefined do not count.
    """
    if len(A) == 0:
        return NOTHING
    gains, past = sign * A, range(len(A) - 1)
    best = [metrics.best(gains[u:-1, u]) for u in past]
    return Forgetting(
        seen=metrics.mean(A[-1]),
        backward=metrics.mean([gains[-1, u] - gains[u, u] for u in past]),
        forgotten=metrics.mean([high - gains[-1, u] for u, high in zip(past, best, strict=True)]),
    )


TABLE = ["round", "session", "tested"]


def complete_rows(frame: pd.DataFrame, file: Path) -> pd.DataFrame:
    """The rows of sessions that are complete: a killed run may leave some of its last one.

    Raises:
        SettingsError: rows are missing, doubled or in another order.
    """
    session, tested, complete = 1, 1, 0
    for number, found in enumerate(frame[["session", "tested"]].to_numpy(dtype=np.float64).tolist(), start=1):
        if found != [session, tested]:
            raise SettingsError(
                f"{file}: row {number} is session {found[0]:g} tested on {found[1]:g} instead of {session} on {tested}: rows "
                "are missing"
            )
        if tested < session:
            tested += 1
        else:
            session, tested, complete = session + 1, 1, number
    return frame[:complete]


def matrix(rows: pd.DataFrame, column: str) -> Floats:
    """A [S, S] of a run or of several with the same sessions, whose mean it is; NaN above the diagonal."""
    sessions = range(1, int(rows["session"].max()) + 1) if len(rows) else range(0)
    means = rows.groupby(["session", "tested"])[column].mean().unstack()
    return means.reindex(index=sessions, columns=sessions).to_numpy(dtype=np.float64)


def column_of(score: Score) -> str:
    """The column that a report about a score uses; for one of the next period that of the sessions themselves."""
    return f"test_{score.present.name}"


def measured(rows: pd.DataFrame, score: Score) -> Forgetting:
    """Forgetting of a run by a score; ``NOTHING`` if it has not been recorded."""
    column = column_of(score)
    if column not in rows or rows[column].isna().all():
        return NOTHING
    return forgetting(matrix(rows, column), score.sign)


def estimated(rows: pd.DataFrame, history: pd.DataFrame, within: bool) -> Forgetting:
    """Forgetting of a run over its sessions, or over rounds if it has one ``within`` which data drifts.

    Args:
        rows: of ``per_class.csv``. history: ``round`` and ``session`` of every round.
    """
    by_split = dict(list(rows.set_index("round").groupby("split")))
    changes = history["session"].nunique() > 1
    if not (changes or within) or not {"test", "held"} <= by_split.keys():
        return NOTHING
    frames = (by_split[name].filter(regex=r"^class_\d+$") for name in ("test", "held"))
    accuracy, held = (each.reindex(history["round"]).to_numpy(dtype=float) for each in frames)
    period = history["session" if changes else "round"].to_numpy()
    return forgetting(accuracy_matrix(accuracy, held, period))
