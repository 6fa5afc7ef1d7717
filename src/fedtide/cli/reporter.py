"""Output of the commands: log lines, progress, tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from fedtide.report.build import ReportSummary
    from fedtide.runs.display.progress import Watch

LOG_WIDTH = 140
"""Columns of a table written to a file."""

_LOG_SECONDS = 10.0


_console = Console(stderr=True, highlight=False)


def log(line: str) -> None:
    """Print a line on standard error."""
    _console.print(line, markup=False, soft_wrap=True)


def silent(line: str) -> None:
    """Print nothing: the log of ``--quiet``."""


def output(width: int = LOG_WIDTH) -> Console:
    """Standard output for tables: as wide as the terminal, or ``width`` columns in a file."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else width)


def print_table(heads: Iterable[str], lines: Iterable[Iterable[str]], width: int = LOG_WIDTH) -> None:
    """Print a table without lines or a box."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*heads, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*map(Text, line))  # brackets of a plug-in's docstring are no markup
    output(width).print(table)


def print_report(summary: ReportSummary) -> None:
    """Print a report's table, results and warnings."""
    console = output()
    console.print(summary.table)
    for line in (*summary.results, *summary.warnings):
        console.print(line, markup=False)
    console.print(f"\nreport: {summary.page}", markup=False)


def described(summary: ReportSummary) -> str:
    """A report's results, table and warnings in Markdown."""
    from rich.text import Text

    columns = summary.table.columns
    rows = zip(*([Text.from_markup(str(cell)).plain for cell in column.cells] for column in columns), strict=True)
    lines = [[str(column.header) for column in columns], ["---"] * len(columns), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    said = "\n".join(f"- {line}" for line in (*summary.results, *summary.warnings))
    return f"{said}\n\n{table}\n\nThe page with all figures is the artifact `report/report.html`.\n"


@contextmanager
def progress(quiet: bool) -> Iterator[Watch]:
    """Log lines, and progress: bars in a terminal, otherwise of a single run a line at most every ten seconds."""
    from fedtide.runs.display.progress import Watch, throttled

    follows = os.environ.get("LOCAL_RANK", "0") != "0"  # a run's further processes execute its command, too
    if quiet:
        yield Watch(silent)
    elif follows:
        yield Watch(log)
    elif _console.is_interactive:
        from fedtide.runs.display.bars import Bars

        with Bars(_console) as bars:
            yield Watch(log, bars)
    else:
        yield Watch(log, update=throttled(log, _LOG_SECONDS))
