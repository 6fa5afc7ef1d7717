"""The recorded rounds of a run, session by session."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedtide.core.array_types import Floats
from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import RunDirectory
from fedtide.settings.scores import ACCURACY, Score


@dataclass(frozen=True)
class Session:
    """Rounds t = 1..T of one session.

    Attributes:
        score: [T], after each round, shares in percent; NaN where not evaluated.
        gradient_rounds: V, gradient rounds before them.
        latency, energy: [T], seconds and joules of each round, the first including the gradient rounds before it; NaN if
            not recorded.
        kappa: [T], normalized communication cost of each round; NaN if not recorded.
        information_loss: the last measured in the session, NaN if there is none.
    """

    score: Floats
    gradient_rounds: float
    latency: Floats
    energy: Floats
    kappa: Floats
    information_loss: float = math.nan


class History:
    """The rounds of one run, from its ``history.csv``.

    Args:
        directory: of the run.
        score: to read, on the test samples.

    Raises:
        SettingsError: the file was not written by a run, was changed since, or lacks the score.
    """

    def __init__(self, directory: Path, score: Score = ACCURACY) -> None:
        RunDirectory(directory).verify("history.csv", "clients.csv")
        frame = pd.read_csv(directory / "history.csv")
        if "session" not in frame:
            raise SettingsError(f"{directory / 'history.csv'}: no column 'session', so it was not written by a run")
        if (column := f"test_{score.name}") not in frame:
            raise SettingsError(f"{directory / 'history.csv'}: no column {column!r}; {score.remedy} and run again")
        columns = ("session", "gradient_rounds", "latency", "energy", "kappa", "information_loss")
        self._rounds = frame.reindex(columns=columns).astype(float)
        self._rounds["score"] = (100 if score.share else 1) * frame[column].astype(float)

    @property
    def score(self) -> pd.Series[float]:
        """After each round, shares in percent, NaN where not evaluated."""
        return self._rounds["score"]

    def session(self, number: int) -> Session:
        """Session ``number``, counted from 1.

        Raises:
            SettingsError: the run has no such session.
        """
        rounds = self._rounds[self._rounds["session"] == number]
        if rounds.empty:
            raise SettingsError(f"no session {number}: the runs have {int(self._rounds['session'].max())} sessions")
        spent = self._rounds["gradient_rounds"]  # a running total
        before = spent.shift(fill_value=0.0)[rounds.index[0]]
        columns = {name: rounds[name].to_numpy() for name in ("score", "latency", "energy", "kappa")}
        measured = rounds["information_loss"].dropna()
        return Session(
            **columns,
            gradient_rounds=float(np.nan_to_num(spent[rounds.index[0]] - before)),
            information_loss=float(measured.iloc[-1]) if len(measured) else math.nan,
        )
