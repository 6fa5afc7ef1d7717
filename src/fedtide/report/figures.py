"""Figures of a comparison, each as the bytes of a PNG, or None without data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedtide.report.formats import byte_unit
from fedtide.report.records import METHOD, Method, Records
from fedtide.report.session_marks import groups_in_turn, mark_sessions, session_spans
from fedtide.report.style import PALETTE, WIDTH, line_style, paper, png, score_axis
from fedtide.report.table import Table

_MOST_LINES = len(PALETTE)
_MOST_CELLS = 20
_MOST_MARKERS = 25


def score_over_rounds(records: Records) -> bytes | None:
    """Mean and range over the seeds; failed runs dotted, up to where they ended."""
    return _curves(records, "round", lambda _: (1.0, "Communication round"))


def score_over_bytes(records: Records) -> bytes | None:
    """The same over the bytes communicated so far; a line per session."""

    def axis(most: float) -> tuple[float, str]:
        size, unit = byte_unit(most)
        return size, f"Communicated, both directions ({unit})"

    return _curves(records, "bytes", axis)


def score_after_changes(table: Table) -> bytes | None:
    """The score after session changes: one dot per run, a bar at the mean of each method."""
    values = table.by_seed("transition")
    if not values.notna().any(axis=None):
        return None
    methods = [method for method, _ in table.rows()]
    names, facets = _names(methods), _facets(methods)
    with paper():
        figure = Figure(figsize=(WIDTH, 0.8 + 0.26 * len(names)), layout="constrained")
        axes = figure.subplots()
        for place, method in enumerate(methods):
            if method in values:
                of_runs, colour = values[method].dropna(), line_style(facets[method].number)["color"]
                axes.plot(of_runs, np.full(len(of_runs), place), "o", color=colour, alpha=0.6, markersize=6, mew=0)
                axes.plot(of_runs.mean(), place, "|", color="black", markersize=11, mew=1.8)
        axes.set_yticks(range(len(names)), list(names.values()))
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(visible=True, axis="both")
        unit = " (%)" if table.score.share else ""
        axes.set_xlabel(f"{table.score.title} of the first rounds after a session change{unit}")
        if table.score.share:
            axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:g}")
        return png(figure)


def per_class(records: Records) -> bytes | None:
    """Accuracy per class of the last evaluated model, mean over the seeds; grey where a class has no test samples."""
    complete = records.per_class[records.per_class["state"] == "complete"]
    classes = [name for name in complete.columns if str(name).startswith("class_")]
    if complete.empty or not classes:
        return None
    means = complete.groupby(METHOD, sort=False)[classes].mean()
    values, names = means.to_numpy(dtype=np.float64), _names(list(means.index))
    rows, columns = values.shape
    with paper():
        figure = Figure(figsize=(WIDTH, 1.0 + 0.27 * rows), layout="constrained")
        axes = figure.subplots()
        few = columns <= _MOST_CELLS
        axes.grid(visible=False)
        axes.set_facecolor("#d9d9d9")
        image = axes.pcolormesh(
            np.arange(columns),
            np.arange(rows),
            np.ma.masked_invalid(values),
            cmap="cividis",
            vmin=0,
            vmax=1,
            edgecolors="white" if few else "face",
            linewidth=1.0 if few else 0.0,
        )
        axes.invert_yaxis()
        axes.set_yticks(range(rows), list(names.values()))
        axes.xaxis.set_major_locator(MaxNLocator(_MOST_CELLS, integer=True))
        axes.set_xlabel("Class")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        if few:
            axes.set_xticks(range(columns))
            _write_cells(axes, values)
        bar = figure.colorbar(image, ax=axes, fraction=0.02, pad=0.01, format=lambda share, _: f"{100 * share:g}")
        bar.set_label("Accuracy (%)")
        bar.outline.set_visible(False)
        return png(figure)


def _write_cells(axes: Axes, values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    for (row, column), share in np.ndenumerate(values):
        if not math.isnan(share):
            colour = "white" if share < 0.55 else "black"
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7.5, color=colour)


@dataclass(frozen=True)
class _Line:
    """One line of one panel."""

    panel: str
    name: str
    number: int


def _facets(methods: list[Method]) -> dict[Method, _Line]:
    """Panel and line of each method.

    One panel per algorithm with a line per initialiser, so that initialisers are easy to compare; with a single
    initialiser one panel with a line per algorithm, unless there are too many.
    """
    labels = list(dict.fromkeys(label for label, _ in methods))
    starts = list(dict.fromkeys(start for _, start in methods))
    if len(starts) == 1 and 1 < len(labels) <= _MOST_LINES:
        return {(a, i): _Line(i, a, labels.index(a)) for a, i in methods}
    return {(a, i): _Line(a, i, starts.index(i)) for a, i in methods}


def _names(methods: list[Method]) -> dict[Method, str]:
    """Row names; without the initialiser if all share one."""
    one = len({start for _, start in methods}) == 1
    return {(label, start): label if one else f"{label} · {start}" for label, start in methods}


def _grid(panels: int) -> tuple[int, int]:
    """Rows and columns: few panels are stacked, so that rounds stay legible."""
    columns = 1 if panels <= 4 else 3 if panels <= 12 else 5
    return -(-panels // columns), columns


def _curves(records: Records, x: str, axis: Callable[[float], tuple[float, str]]) -> bytes | None:
    column, score = records.column, records.score
    history = records.history.dropna(subset=[column])
    if history.empty:
        return None
    drawn = set(history[METHOD].itertuples(index=False, name=None))
    facets = _facets([method for method in records.methods if method in drawn])
    panels = list(dict.fromkeys(line.panel for line in facets.values()))
    rows, columns = _grid(len(panels))
    size, label = axis(records.history[x].max())
    with paper():
        height = 3.6 if len(panels) == 1 else 0.6 + rows * (2.1 if columns == 1 else 1.6)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        axes_of = dict(zip(panels, grid.flat, strict=False))
        for spare in list(grid.flat)[len(panels) :]:
            spare.set_visible(False)
        for (name, start), group in history.groupby(METHOD, sort=False):
            line = facets[str(name), str(start)]
            _draw(axes_of[line.panel], line, group.assign(score=group[column]), x, size)
        for number, (panel, axes) in enumerate(axes_of.items()):
            shown = [method for method, line in facets.items() if line.panel == panel]
            spans = session_spans(records.history, shown) if x == "round" else []
            named = bool(spans) and number < columns
            mark_sessions(axes, spans, named, groups_in_turn(records))
            axes.set_title(panel if len(panels) > 1 else "", pad=14 if named else None)
            axes.tick_params(labelbottom=number + columns >= len(panels))
        score_axis(grid.flat[0], score, history[column].min(), history[column].max())
        grid.flat[0].set_xlim(left=0, right=1.005 * records.history[x].max() / size)
        figure.supxlabel(label, fontsize=9)
        figure.supylabel(f"Test {score.words}", fontsize=9)
        _legend(figure, axes_of)
        return png(figure)


def _draw(axes: Axes, line: _Line, group: pd.DataFrame, x: str, size: float) -> None:
    """One method: the mean and range of its complete runs, and each failed run on its own."""
    look = line_style(line.number)
    complete = group[group["state"] == "complete"]
    per_round = complete.groupby(["session", "round"], as_index=False).agg(
        x=(x, "mean"), mean=("score", "mean"), low=("score", "min"), high=("score", "max")
    )
    # Algorithms reach a session change at different bytes: joined lines would hide each other.
    pieces = [per_round] if x == "round" else [piece for _, piece in per_round.groupby("session")] or [per_round]
    marker = "o" if len(per_round) <= _MOST_MARKERS else ""
    for number, piece in enumerate(pieces):
        name = line.name if number == 0 else None
        axes.plot(piece["x"] / size, piece["mean"], label=name, marker=marker, markersize=3.5, **look)
        axes.fill_between(piece["x"] / size, piece["low"], piece["high"], color=look["color"], alpha=0.18, lw=0)
    for _, run in group[group["state"] != "complete"].groupby("key", sort=False):
        axes.plot(run[x] / size, run["score"], color=look["color"], linestyle=":", linewidth=1.0)
        axes.plot(run[x].iloc[-1] / size, run["score"].iloc[-1], "x", color=look["color"], markersize=6)


def _legend(figure: Figure, axes_of: dict[str, Axes]) -> None:
    handles: dict[str, Any] = {}
    for axes in axes_of.values():
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    if len(handles) > 1:
        figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=min(len(handles), 7))
