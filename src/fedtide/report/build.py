"""From run directories to a report: a page, its figures and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table as RichTable

from fedtide.core.errors import SettingsError
from fedtide.core.files import write_bytes
from fedtide.records import frames as records
from fedtide.records import statistics
from fedtide.records.frames import Method, Records
from fedtide.report import detections, drifts, fairness, findings, gaps, pace, periods, privacy, search, seconds
from fedtide.report.charts.chart import Chart
from fedtide.report.charts.pictures import Picture, picture
from fedtide.report.drawings import WORLD, of_clients, of_runs
from fedtide.report.method_table import MethodTable
from fedtide.report.pace import Pace
from fedtide.report.page import Comparison, render, rows
from fedtide.report.sheets import sheets
from fedtide.report.table import Table, tabulate
from fedtide.report.transitions import Rules, per_session, transitions
from fedtide.settings.scores import ACCURACY, Score

_TERMINAL_COLUMNS = {
    "final", "last", "transition", "drop", "backward", "backward_estimated", "tail", "bytes", "latency", "energy",
}  # fmt: skip


@dataclass(frozen=True)
class ReportSummary:
    """A report that was written.

    Attributes:
        page: the HTML file.
        complete, total: number of complete runs, and of all requested runs.
        results, warnings: one sentence each.
        table: the final table, for a terminal.
    """

    page: Path
    complete: int
    total: int
    results: tuple[str, ...]
    warnings: tuple[str, ...]
    table: RichTable


@dataclass(frozen=True)
class Contents:
    """What a report contains.

    Attributes:
        title: of the page.
        last: number of last rounds to average.
        command: the command line, shown on the page.
        timeline_pictures: PNG files of the clients' data over time, embedded at the end.
        rules: how session changes are measured.
        speed: how the speed of runs in one session is measured.
        tuning: folder of a search with two objectives; the page shows its Pareto front.
        cohorts: who takes part when. concepts: who sees which concept when.
        score: that the key figure, the main table, its sentences and comparisons are about.
        moves: how the population moves, columns with a row per session, see :func:`fedtide.report.charts.ribbon.ribbon`.
        table: settings of the data, if it is a table with clients, whose columns the page can name.
        formats: of the figures' files; ``png`` is always among them. Pictures that were files before stay PNG.
    """

    title: str
    last: int
    command: str
    timeline_pictures: Sequence[Path] = ()
    rules: Rules = field(default_factory=Rules)
    speed: Pace = field(default_factory=Pace)
    tuning: Path | None = None
    cohorts: Figure | None = None
    concepts: Chart | None = None
    score: Score = ACCURACY
    moves: Mapping[str, Sequence[Any]] | None = None
    table: Any = None
    formats: Sequence[str] = ("png",)


def build(run_dirs: Sequence[Path], out: Path, contents: Contents) -> ReportSummary:
    """Write ``report.html``, the figures, the tables as CSV and ``metrics.json`` into ``out``.

    Nothing is written before everything is built, and each file is written atomically. The same runs and contents give
    the same bytes.

    Args:
        run_dirs: run directories, in the order of the table.
        out: folder of the report; created if missing.
        contents: of the report.

    Raises:
        SettingsError: there is no run, a run has not recorded the score, a file was not written by a run, a picture is
            missing, or the search has no front.
    """
    last, rules, formats = contents.last, contents.rules, contents.formats
    if last < 1:
        raise SettingsError(f"report.last = {last} should be at least 1")
    for path in contents.timeline_pictures:
        if not path.is_file():
            raise SettingsError(f"no picture {path}")
    found = [search.search_front(contents.tuning)] if contents.tuning else []
    read = records.load(run_dirs, contents.score)
    table = tabulate(read, last, rules, contents.speed.target)
    fair = fairness.fairness(read, last)
    changes = transitions(read, rules)
    names = [str(name) for name in (contents.moves or {}).get("name", ())]
    ahead = _ahead(read, table, names)
    comparisons = [*_comparisons(table), *ahead, *(_comparisons(fair) if fair else [])]
    shown = [
        each for each in comparisons if each.over != "rows" or each is next(row for row in ahead if row.over == "rows")
    ]
    warnings = [*findings.warnings(read), *periods.falls(read, names)]
    results = [*findings.results(table), *(findings.results(fair) if fair else [])]
    pictures = [picture(each, formats) for each in of_runs(read, table, run_dirs, contents.moves)]
    world = [Picture(path.stem, *WORLD, {"png": path.read_bytes()}) for path in contents.timeline_pictures]
    fronts = [front for _, front in found]
    who = [picture(each, formats) for each in of_clients(contents.cohorts, contents.concepts)]
    tables = [
        *pace.sheet(read, last, table.target, contents.speed.baseline),
        *seconds.sheet(read, table.target),
        *gaps.sheet(read, run_dirs, _shown_method(table), contents.table),
        *sheets(changes, rules),
        *drifts.sheets(read),
        *detections.sheets(alarms := detections.per_run(read)),
        *privacy.sheets(read),
        *([fairness.sheet(fair, last)] if fair else []),
        *(sheet for sheet, _ in found),
    ]
    html = render(
        *(contents.title, read, results, warnings, table, tables, shown),
        *([*pictures, *fronts, *world, *who], contents.command),
    )
    files = {
        f"{each.name}.{form}": content for each in [*pictures, *fronts, *who] for form, content in each.files.items()
    }
    files |= {
        "table.csv": _csv(table.methods.reset_index()),
        "comparison.csv": _csv(_comparison_frame(comparisons)),
        **({"transitions.csv": _csv(per_session(changes))} if len(changes) else {}),
        **({"drifts.csv": _csv(events)} if len(events := drifts.all_events(read)) else {}),
        **({"alarms.csv": _csv(alarms)} if len(alarms) else {}),
        **({"fairness.csv": _csv(fair.methods.reset_index())} if fair else {}),
        "metrics.json": json.dumps(_flat(table) | (_flat(fair) if fair else {}), indent=2, allow_nan=False).encode()
        + b"\n",
        "report.html": html.encode(),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_bytes(out / name, content)
    return ReportSummary(
        page=out / "report.html",
        complete=int((read.runs["state"] == "complete").sum()),
        total=len(run_dirs),
        results=tuple(results),
        warnings=tuple(warnings),
        table=_printable(contents.title, table),
    )


def _comparisons(table: MethodTable) -> list[Comparison]:
    """Every method against the best one, by the headline metrics; none for a single method."""
    comparisons = []
    for column in (column for column in table.columns if column.headline):
        values = table.by_seed(column.key).dropna(axis=1, how="all")
        reference = table.leader(column)
        if reference is not None and values.shape[1] > 1:
            comparisons.append(Comparison(column, reference, statistics.compare(values, reference)))
    return comparisons


def _shown_method(table: Table) -> Method | None:
    """The best method, of which details are shown."""
    return next((leader for column in table.columns if column.headline and (leader := table.leader(column))), None)


def _ahead(read: Records, table: Table, names: Sequence[str]) -> list[Comparison]:
    """The same over periods and over the rows of each, of a score on the next period."""
    column = table.level
    if not read.score.ahead or (reference := table.leader(column)) is None:
        return []
    return [
        Comparison(
            column,
            reference,
            frame,
            "rows" if period else "periods",
            periods.period_name(period, names) if period else "",
        )
        for period, frame in periods.compared(read, reference)
    ]


def _comparison_frame(comparisons: list[Comparison]) -> pd.DataFrame:
    frames = [
        comparison.frame.reset_index().assign(
            metric=comparison.column.key,
            reference=findings.method(comparison.reference),
            over=comparison.over,
            period=comparison.period,
            reading=[statistics.verdict(row, comparison.over[:-1]) for row in comparison.frame.to_dict("records")],
        )
        for comparison in comparisons
    ]
    columns = ["metric", "over", "period", "reference", "label", "initialiser", *statistics.COLUMNS, "reading"]
    return pd.concat(frames)[columns] if frames else pd.DataFrame(columns=columns)


def _flat(table: MethodTable) -> dict[str, float]:
    """``<label>/<initialiser>/<metric>`` -> number, finite ones only."""
    return {
        f"{label}/{start}/{name}": float(f"{value:.12g}") if isinstance(value, float) else int(value)
        for (label, start), row in table.rows()
        for name, value in row.items()
        if math.isfinite(value)
    }


def _printable(title: str, table: Table) -> RichTable:
    """The final table for a terminal: only the columns that fit; the page has all."""
    printable = RichTable(title=escape(title), box=SIMPLE, pad_edge=False)
    for heading in ("Algorithm", "Initialiser"):
        printable.add_column(heading, no_wrap=True)
    chosen = [
        place
        for place, column in enumerate(table.columns)
        if column.key.startswith("mean_next_") or column.key in _TERMINAL_COLUMNS
    ]
    for heading in ("Seeds", *(table.columns[place].title for place in chosen)):
        printable.add_column(heading, justify="right")
    for row in rows(table):
        shown = [row["cells"][place] for place in chosen]
        cells = [f"[bold]{cell['text']}[/bold]" if cell["best"] else cell["text"] for cell in shown]
        printable.add_row(escape(row["label"]), escape(row["initialiser"]), row["seeds"], *cells)
    return printable


def _csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.12g").encode()
