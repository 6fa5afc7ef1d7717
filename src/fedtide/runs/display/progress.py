"""The progress of runs, wherever they are executed: read from their records, so that it costs a run nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import read_json
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import RECORDED, Score, main_score

if TYPE_CHECKING:
    import lightning as L

_TAIL = 1 << 14  # bytes at the end of a history that are read: its last rows
_COLUMNS = {f"{split}_{score.name}": score for score in map(main_score, RECORDED) for split in ("test", "validation")}
"""Columns and their scores; the first column with values is shown."""


class Display:
    """What a user sees of jobs in progress; this one shows nothing."""

    def begin(self, name: str, directories: Sequence[Path]) -> None:
        """A job has begun that writes these run directories, one after another."""

    def end(self, name: str) -> None:
        """The job has ended."""

    def count(self, ended: int, total: int, best: str = "") -> None:
        """So many jobs have ended; ``best``: the best score so far, in a few characters."""


@dataclass(frozen=True)
class Watch:
    """What follows runs while they are executed.

    Attributes:
        log: gets log lines. display: shows the runs in progress.
        update: gets a line of progress per round of a single run; None for no lines.
        callbacks: further Lightning callbacks of a run; a true attribute ``pruned`` marks the run as pruned.
    """

    log: Callable[[str], None] = lambda line: None
    display: Display = field(default_factory=Display)
    update: Callable[[str], None] | None = None
    callbacks: Sequence[L.Callback] = ()


UNWATCHED = Watch()


def title(settings: RunSettings) -> str:
    """Name of a run for a display."""
    return f"{settings.label} · {settings.initializer_label} · seed {settings.seed}"


class Position(NamedTuple):
    """Rounds done, of how many (``None`` while it is not known), and the last main score (``None`` before the first)."""

    done: int
    rounds: int | None
    score: tuple[Score, float] | None

    @property
    def shown(self) -> str:
        """The score's value in a few characters."""
        return "" if self.score is None else self.score[0].shown(self.score[1]).strip()


class Follower:
    """Follows a run by its directory, or several that are executed one after another; nothing is written there."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._runs = [_Run(path) for path in directories]

    def position(self) -> Position:
        """Where it is. What cannot be read, such as a row that is being written, is ignored."""
        for run in self._runs:
            with suppress(OSError, ValueError, SettingsError):
                run.read()
        lengths = [run.rounds for run in self._runs if run.rounds is not None]
        rounds = sum(lengths) + max(lengths) * (len(self._runs) - len(lengths)) if lengths else None
        scores = [run.score for run in self._runs if run.score is not None]
        return Position(sum(run.done for run in self._runs), rounds, scores[-1] if scores else None)


class _Run:
    def __init__(self, path: Path) -> None:
        self._path, self._size = path, 0
        self.done = 0
        self.rounds: int | None = None
        self.score: tuple[Score, float] | None = None

    def read(self) -> None:
        if self.rounds is None and (facts := read_json(self._path / "manifest.json")) is not None:
            self.rounds = int(facts["rounds"])
        history = self._path / "history.csv"
        size = history.stat().st_size if history.exists() else 0
        if size == self._size:
            return
        self._size, self.done = size, 0
        with history.open("rb") as stream:
            columns = stream.readline().decode().rstrip("\n").split(",")
            stream.seek(max(stream.tell(), size - _TAIL))
            lines = stream.read().decode(errors="replace").split("\n")[:-1]  # without a row that is being written
        rows = [
            dict(zip(columns, cells, strict=True)) for line in lines if len(cells := line.split(",")) == len(columns)
        ]
        self.done = int(rows[-1]["round"]) if rows else 0
        found = ((score, [cell for row in rows if (cell := row.get(name))]) for name, score in _COLUMNS.items())
        scores = [(score, float(cells[-1])) for score, cells in found if cells]
        self.score = scores[0] if scores else self.score
