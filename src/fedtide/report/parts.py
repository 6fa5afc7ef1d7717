"""What a report is made from, and what it is made of.

Every file in ``sections`` adds functions that return figures, tables of text, ... of a :class:`Source`, and none where its runs
have not recorded what they show::

    sheets.add(70, lambda source: sheets_of(source.records))

Nothing else names these files.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from fedtide.records import frames as records
from fedtide.records.frames import Records
from fedtide.records.run_directory import RunDirectory
from fedtide.records.summary import Summary
from fedtide.report.charts.pictures import Drawing
from fedtide.report.tables.evaluations import evaluations
from fedtide.report.tables.method_table import Comparison, MethodTable, Sheet
from fedtide.report.tables.table import Table, tabulate
from fedtide.report.tables.transitions import transitions
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.scores import Score


@dataclass(frozen=True)
class Contents:
    """What a report contains.

    Attributes:
        settings: the block ``report`` of the settings.
        command: the command line, shown on the page.
        world: picture of the clients' data over time: a figure, a PNG, or a PNG file, which is not written again.
        cohorts: who takes part when.
        moves: of the population: columns with a row per session, see :mod:`fedtide.report.sections.population`.
        periods: names of the sessions, if they are periods of the data's time.
        classes: names of the classes; by default those in the settings of the runs, or their numbers.
    """

    settings: ReportSettings
    command: str
    world: Path | bytes | Figure | None = None
    cohorts: Figure | None = None
    moves: Mapping[str, Sequence[Any]] | None = None
    periods: Sequence[str] = ()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """What sections are made from: records, their main table, the directories of the runs, and wishes for the report."""

    records: Records
    table: Table
    run_dirs: Sequence[Path]
    contents: Contents

    @classmethod
    def read(cls, run_dirs: Sequence[Path], contents: Contents) -> Source:
        """Of run directories; a SettingsError if there is none, one has not recorded the score, or a file is not a run's."""
        complete = complete_runs(run_dirs).values()
        shared = min(each["rounds"] for each in complete) if any("stopped" in each for each in complete) else None
        read = records.load(run_dirs, Score(contents.settings.metric), shared)
        read = replace(read, periods=tuple(contents.periods), classes=contents.classes or read.classes)
        return cls(read, tabulate(read, contents.settings), run_dirs, contents)

    @cached_property
    def changes(self) -> pd.DataFrame:
        """Every evaluated session change of every run, see :func:`fedtide.report.tables.transitions.transitions`."""
        return transitions(self.records, self.contents.settings)

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """Every evaluation of a client, see :func:`fedtide.report.tables.evaluations.evaluations`."""
        return evaluations(self.run_dirs, self.records)


def complete_runs(run_dirs: Iterable[Path]) -> dict[Path, Summary]:
    """Summaries of the complete runs."""
    found = {path: RunDirectory(path).summary() for path in run_dirs}
    return {path: summary for path, summary in found.items() if summary and summary["state"] == "complete"}


T = TypeVar("T")
Maker = Callable[[Source], Iterable[T]]


class Kind(Generic[T]):
    """One kind of things in a report, and the functions of all sections that make them."""

    def __init__(self) -> None:
        self._makers: list[tuple[int, Maker[T]]] = []

    def add(self, place: int, maker: Maker[T]) -> None:
        """Add a function; what functions return comes in the order of their places."""
        self._makers.append((place, maker))

    def of(self, source: Source) -> list[T]:
        """All that the sections have of this kind."""
        _import_sections()
        order = sorted(self._makers, key=lambda each: (each[0], each[1].__module__))
        return [found for _, maker in order for found in maker(source)]


figures, sheets, warnings = Kind[Drawing](), Kind[Sheet](), Kind[str]()
comparisons = Kind[Comparison]()
frames = Kind[tuple[str, pd.DataFrame]]()
"""Names of CSV files, without suffix, and what they hold."""
tables = Kind[tuple[str, MethodTable]]()
"""Names and tables of further metrics by method: a CSV file, sentences, comparisons, and numbers in ``metrics.json``."""


def _import_sections() -> None:
    package = importlib.import_module("fedtide.report.sections")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
