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
        self._session = frame["session"].to_numpy()
        self._score = (100 if score.share else 1) * frame[column].to_numpy(dtype=np.float64)
        absence = np.full(len(frame), np.nan)
        self._gradient_rounds, self._latency, self._energy, self._kappa, self._information_loss = (
            frame[name].to_numpy(dtype=np.float64) if name in frame else absence
            for name in ("gradient_rounds", "latency", "energy", "kappa", "information_loss")
        )

    @property
    def score(self) -> pd.Series[float]:
        """After each round, shares in percent, NaN where not evaluated."""
        return pd.Series(self._score)

    def session(self, number: int) -> Session:
        """Session ``number``, counted from 1.

        Raises:
            SettingsError: the run has no such session.
        """
        rounds = np.flatnonzero(self._session == number)
        if len(rounds) == 0:
            raise SettingsError(f"no session {number}: the runs have {int(self._session.max())} sessions")
        first = rounds[0]
        before = self._gradient_rounds[first - 1] if first else 0.0  # the column is a running total
        return Session(
            score=self._score[rounds],
            gradient_rounds=float(np.nan_to_num(self._gradient_rounds[first] - before)),
            latency=self._latency[rounds],
            energy=self._energy[rounds],
            kappa=self._kappa[rounds],
            information_loss=_last(self._information_loss[rounds]),
        )


def _last(values: Floats) -> float:
    """The last value that is not NaN, NaN if there is none."""
    known = values[~np.isnan(values)]
    return float(known[-1]) if len(known) else math.nan
