"""From run directories to a report: a page, its figures and tables."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table as RichTable

from fedtide.core.storage.files import write_bytes
from fedtide.records.measures import statistics
from fedtide.report import findings, parts
from fedtide.report.page import render, rows
from fedtide.report.parts import Contents, Source
from fedtide.report.tables.method_table import Comparison, MethodTable, against_leaders
from fedtide.report.tables.table import Table

_TERMINAL_COLUMNS = {
    "final_served", "final_global", "final", "last", "transition", "drop", "backward", "backward_served", "backward_global",
    "backward_estimated", "tail", "bytes", "latency", "energy",
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


def build(run_dirs: Sequence[Path], out: Path, contents: Contents) -> ReportSummary:
    """Write ``report.html``, the figures, the tables as CSV and ``metrics.json`` into ``out``.

    Nothing is written before everything is built, and each file is written atomically. The same runs and contents give
    the same bytes.

    Args:
        run_dirs: run directories, in the order of the table.
        out: folder of the report; created if missing.
        contents: of the report.

    Raises:
        SettingsError: there is no run, a run has not recorded the score, or a file was not written by a run.
    """
    source = Source.read(run_dirs, contents)
    read, table, further = source.records, source.table, dict(parts.tables.of(source))
    comparisons = [
        *against_leaders(table),
        *parts.comparisons.of(source),
        *(each for found in further.values() for each in against_leaders(found)),
    ]
    warnings = [*findings.warnings(read), *parts.warnings.of(source)]
    results = findings.results([table, *further.values()])
    formats = dict.fromkeys(["png", *contents.settings.formats])
    pictures = [(drawing, drawing.files(list(formats))) for drawing in parts.figures.of(source)]
    shown = [comparison for comparison in comparisons if comparison.shown]
    html = render(source, results, warnings, shown, pictures)
    files = {
        f"{drawing.name}.{form}": content
        for drawing, own in pictures
        if drawing.written
        for form, content in own.items()
    }
    frames = {"table": table.methods.reset_index(), "comparison": _comparison_frame(comparisons)}
    frames |= {name: found.methods.reset_index() for name, found in further.items()} | dict(parts.frames.of(source))
    for name, frame in frames.items():
        files[f"{name}.csv"] = frame.to_csv(index=False, lineterminator="\n", float_format="%.12g").encode()
    numbers = {name: value for found in (table, *further.values()) for name, value in _flat(found).items()}
    files["metrics.json"] = json.dumps(numbers, indent=2, allow_nan=False).encode() + b"\n"
    files["report.html"] = html.encode()
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_bytes(out / name, content)
    return ReportSummary(
        page=out / "report.html",
        complete=int((read.runs["state"] == "complete").sum()),
        total=len(run_dirs),
        results=tuple(results),
        warnings=tuple(warnings),
        table=_printable(contents.settings.title, table),
    )


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
    columns = ["metric", "over", "period", "reference", "label", "initializer", *statistics.COLUMNS, "reading"]
    return pd.concat(frames)[columns] if frames else pd.DataFrame(columns=columns)


def _flat(table: MethodTable) -> dict[str, float]:
    """``<label>/<initializer>/<metric>`` -> number, finite ones only."""
    return {
        f"{label}/{start}/{name}": float(f"{value:.12g}") if isinstance(value, float) else int(value)
        for (label, start), row in table.rows()
        for name, value in row.items()
        if math.isfinite(value)
    }


def _printable(title: str, table: Table) -> RichTable:
    """The final table for a terminal: only the columns that fit; the page has all."""
    printable = RichTable(title=escape(title), box=SIMPLE, pad_edge=False)
    for heading in ("Algorithm", "Initializer"):
        printable.add_column(heading, no_wrap=True)
    chosen = [
        place
        for place, column in enumerate(table.columns)
        if column.key.startswith("mean_next_") or column.key in _TERMINAL_COLUMNS
    ]
    for heading in ("Seeds", *(table.columns[place].title for place in chosen)):
        printable.add_column(heading, justify="right")
    for names, seeds, cells in rows(table):
        texts = [f"[bold]{text}[/bold]" if best else text for text, best in (cells[place] for place in chosen)]
        printable.add_row(*map(escape, names), seeds, *texts)
    return printable
