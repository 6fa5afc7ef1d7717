"""Scores of the model at the end of each session on the held-out samples of every session so far: a matrix, row by row."""

from pathlib import Path

import numpy as np
import pandas as pd

from fedtide.core.array_types import Floats
from fedtide.core.errors import SettingsError
from fedtide.records.measures.forgetting import NOTHING, Forgetting, forgetting
from fedtide.settings.scores import Score

COLUMNS = ["round", "session", "tested"]


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
        session, tested, complete = (session, tested + 1, complete) if tested < session else (session + 1, 1, number)
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
