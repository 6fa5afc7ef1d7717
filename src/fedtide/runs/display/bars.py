"""Bars of work in progress in a terminal, below the lines of the log."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from fedtide.runs.display.progress import Display, Follower

_PER_SECOND = 4  # times that the bars are drawn, and the records of the runs in progress read
_WINDOW = 3600.0  # seconds from whose rounds the remaining time is estimated
_BAR = 12  # columns


class Bars(Display):
    """A bar for each run in progress, after one for all.

    A single run has no bar for all. Eighty columns are enough; names are cut.
    """

    def __init__(self, console: Console) -> None:
        wide = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        columns = (
            TextColumn("{task.description}", markup=False, table_column=wide),
            BarColumn(_BAR),
            TextColumn("{task.fields[done]}", justify="right", table_column=_fixed(7)),
            TextColumn("{task.fields[note]}", justify="right", markup=False, table_column=_fixed(5)),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._bars = _Read(
            *columns, console=console, expand=True, redirect_stdout=False, refresh_per_second=_PER_SECOND,
            speed_estimate_period=_WINDOW,
        )  # fmt: skip
        self._bars.read = self._update
        self._jobs: dict[str, tuple[TaskID, Follower]] = {}
        self._all: TaskID | None = None
        self._ended = 0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def begin(self, name: str, directories: Sequence[Path]) -> None:
        if name in self._jobs:
            self._bars.remove_task(self._jobs.pop(name)[0])
        self._jobs[name] = (self._bars.add_task(name, total=None, done="", note=""), Follower(directories))

    def end(self, name: str) -> None:
        self._bars.refresh()
        if self._all is not None and name in self._jobs:
            self._bars.remove_task(self._jobs.pop(name)[0])

    def count(self, ended: int, total: int, best: str = "") -> None:
        self._ended, done = ended, f"{ended}/{total}"
        if self._all is None:
            self._all = self._bars.add_task("total", total=total, completed=ended, done=done, note=best)
        else:
            self._bars.update(self._all, total=total, done=done, note=best)

    def _update(self) -> None:
        parts = 0.0
        for bar, follower in list(self._jobs.values()):
            position = follower.position()
            done, rounds = position.done, position.rounds
            parts += min(done / rounds, 1.0) if rounds else 0.0
            self._bars.update(bar, completed=done, total=rounds, done=f"{done}/{rounds or '?'}", note=position.score)
        if self._all is not None:
            self._bars.update(self._all, completed=self._ended + parts)


def _fixed(width: int) -> Column:
    return Column(no_wrap=True, min_width=width)


class _Read(Progress):
    """Bars that are brought up to date whenever they are drawn."""

    read: Callable[[], None] = staticmethod(lambda: None)  # rich draws once before there is anything

    def get_renderables(self) -> Iterable[RenderableType]:
        self.read()
        return super().get_renderables()
