"""The progress of runs, wherever they are executed: read from their records, so that it costs a run nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import read_json
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import RECORDED, main_score

if TYPE_CHECKING:
    from fedtide.core import lightning as L

_TAIL = 1 << 14  # bytes at the end of a history that are read: its last rows
_MAIN = [main_score(task) for task in RECORDED]
_COLUMNS = {
    f"{split}_{score.name}": score
    for scores in ([main.of_served for main in _MAIN], _MAIN)
    for split in ("test", "validation")
    for score in scores
}
"""Columns and their scores: the first column with values is shown, or the first of what clients are served, even if empty."""


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


def throttled(write: Callable[[str], None], seconds: float) -> Callable[[str], None]:
    """Writes only lines that come so many seconds after the last one."""
    last = time.monotonic()

    def update(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            write(line)

    return update


def title(settings: RunSettings) -> str:
    """Name of a run for a display."""
    return f"{settings.label} · {settings.initializer_label} · seed {settings.seed}"


class Position(NamedTuple):
    """Rounds done, of how many (``None`` while it is not known), and the last main score in a few characters."""

    done: int
    rounds: int | None
    score: str


class Follower:
    """Follows a run by its directory, or several that are executed one after another; nothing is written there."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._found: dict[Path, tuple[int, Position]] = {}

    def position(self) -> Position:
        """Where it is. What cannot be read, such as a row that is being written, is ignored."""
        positions = [self._read(path) for path in self._directories]
        lengths = [each.rounds for each in positions if each.rounds is not None]
        rounds = sum(lengths) + max(lengths) * (len(positions) - len(lengths)) if lengths else None
        scores = [each.score for each in positions if each.score]
        return Position(sum(each.done for each in positions), rounds, scores[-1] if scores else "")

    def _read(self, path: Path) -> Position:
        size, found = self._found.get(path, (-1, Position(0, None, "")))
        with suppress(OSError, ValueError, SettingsError):
            if found.rounds is None and (facts := read_json(path / "manifest.json")) is not None:
                found = found._replace(rounds=int(facts["rounds"]))
            history = path / "history.csv"
            now = history.stat().st_size if history.exists() else 0
            if now != size:
                size, found = now, found._replace(**_last_rows(history))
        self._found[path] = size, found
        return found


def _last_rows(history: Path) -> dict[str, Any]:
    """Rounds done, and the last main score if there is one."""
    with history.open("rb") as stream:
        columns = stream.readline().decode().rstrip("\n").split(",")
        stream.seek(max(stream.tell(), history.stat().st_size - _TAIL))
        lines = stream.read().decode(errors="replace").split("\n")[:-1]  # without a row that is being written
    rows = [dict(zip(columns, cells, strict=True)) for line in lines if len(cells := line.split(",")) == len(columns)]
    facts: dict[str, Any] = {"done": int(rows[-1]["round"]) if rows else 0}
    for name, score in _COLUMNS.items():
        if cells := [cell for row in rows if (cell := row.get(name))]:
            return {**facts, "score": score.shown(float(cells[-1])).strip()}
        if score.served and name in columns:
            break
    return facts
