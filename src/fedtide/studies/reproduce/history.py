"""The recorded rounds of a run, session by session."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedtide.core.errors import SettingsError
from fedtide.records.measures.sessions import Session, sessions
from fedtide.records.run_directory import RunDirectory
from fedtide.settings.scores import ACCURACY, Score


class History:
    """The rounds of one run, from its ``history.csv``.

    Args:
        directory: of the run.
        score: to read, on the test samples.

    Attributes:
        score: after each round, shares in percent, NaN where not evaluated.

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
        self.score = (100 if score.share else 1) * frame[column].astype(float)
        self._sessions = sessions(frame.assign(score=self.score), "score")

    def session(self, number: int) -> Session:
        """Session ``number``, counted from 1.

        Raises:
            SettingsError: the run has no such session.
        """
        if number not in self._sessions:
            raise SettingsError(f"no session {number}: the runs have {max(self._sessions)} sessions")
        return self._sessions[number]
