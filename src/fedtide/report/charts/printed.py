"""Charts drawn by Matplotlib, for files."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedtide.report.charts.chart import Axis, Cells, Chart, Series
from fedtide.report.charts.session_marks import mark_drifts, mark_sessions
from fedtide.report.charts.style import DASHES, WIDTH, legend_layout, logarithmic, percent, wrapped

_TITLE = 84  # letters of a title over the width of a figure
_ROW_NAME = 44  # letters in a line of the name of a row
_LINE, _LEGEND_LINE = 0.15, 0.19
"""Heights of a line of text in inches."""


def drawn(chart: Chart) -> Figure:
    """The figure; to be called, and the figure saved, inside :func:`fedtide.report.charts.style.paper`."""
    labeled = any(series.labels for panel in chart.panels for series in panel.series)
    names, legend_columns = legend_layout([] if labeled else list(chart.legend))
    figure = Figure(figsize=(WIDTH, chart.height + _room(chart, names, legend_columns)), layout="constrained")
    own = any(panel.y for panel in chart.panels)
    grid = figure.subplots(chart.rows, chart.columns, sharex=not own, sharey=not own, squeeze=False)
    for spare in list(grid.flat)[len(chart.panels) :]:
        spare.set_visible(False)
    for number, (panel, axes) in enumerate(zip(chart.panels, grid.flat, strict=False)):
        if panel.cells is not None:
            image = _cells(axes, panel.cells)
        for series in panel.series:
            _draw(axes, series)
        named = bool(panel.sessions) and number < chart.columns
        mark_sessions(axes, panel.sessions, named, chart.groups)
        mark_drifts(axes, panel.drifts)
        axes.set_title(wrapped(panel.title, _TITLE // chart.columns), pad=14 if named else None)
        axes.tick_params(labelbottom=number + chart.columns >= len(chart.panels))
        if panel.y is not None:
            axes.set_ylabel(panel.y.title)
        if panel.y is not None or number == 0 or chart.y.log:
            finish(axes, chart.x, panel.y or chart.y, panel.cells is not None)
    if (cells := chart.panels[0].cells) is not None:
        bar = figure.colorbar(image, ax=grid, fraction=0.03, pad=0.02)
        if cells.share:
            percent(bar.ax.yaxis)
        if cells.names:
            bar.set_ticks(range(len(cells.names)), labels=cells.names)
            bar.ax.tick_params(which="both", length=0)
        bar.set_label(cells.title)
        bar.outline.set_visible(False)
    figure.supxlabel(chart.x.title, fontsize=9)
    figure.supylabel(chart.y.title, fontsize=9)
    if names:
        shown = [pair for axes in grid.flat for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
        handles = {name: handle for handle, name in reversed(shown)}  # the first of each name
        figure.legend([handles[name] for name in chart.legend], names, loc="outside upper center", ncols=legend_columns)
    return figure


def _room(chart: Chart, legend: list[str], legend_columns: int) -> float:
    """Inches for names that need several lines, and for a legend of more than two."""
    rows = [wrapped(name, _ROW_NAME).count("\n") for name in chart.y.names]
    titles = [wrapped(panel.title, _TITLE // chart.columns).count("\n") for panel in chart.panels]
    lines = chart.rows * sum(rows)
    lines += sum(max(titles[at : at + chart.columns]) for at in range(0, len(titles), chart.columns))
    depths = [name.count("\n") + 1 for name in legend]
    return _LINE * lines + _LEGEND_LINE * max(0, -(-len(legend) // legend_columns) * max(depths, default=0) - 2)


def _draw(axes: Axes, series: Series) -> None:
    color, steps = series.color, series.steps
    if series.low is not None and series.high is not None:
        if series.bars:
            axes.vlines(series.x, series.low, series.high, color=color, linewidth=1.2, alpha=0.6)
        else:
            axes.fill_between(
                series.x,
                series.low,
                series.high,
                step="post" if steps else None,
                color=color,
                alpha=series.shade,
                lw=0,
                label=series.name if series.y is None else None,
            )
    if series.y is None:
        return
    look: dict[str, Any] = {"linestyle": DASHES[series.dash], "linewidth": series.width, "label": series.name}
    if not series.width:
        look |= {"linestyle": "none", "mew": 1.8 if series.marker in "|x" else 0}
    axes.plot(
        series.x,
        series.y,
        drawstyle="steps-post" if steps else "default",
        color=color,
        alpha=series.opacity,
        marker=series.marker,
        markersize=series.size,
        **look,
    )
    for x, y, text in zip(series.x, series.y, series.labels, strict=False):
        axes.annotate(text, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7.5)


def _cells(axes: Axes, cells: Cells) -> Any:
    """The table; its image, for the scale of colors."""
    rows, columns = cells.values.shape
    edges, width = ("white", 1.0) if cells.written else ("face", 0.0)
    axes.grid(visible=False, axis="both")
    axes.set_facecolor(cells.missing)
    image = axes.pcolormesh(
        np.arange(columns) + cells.first,
        np.arange(rows),
        np.ma.masked_invalid(cells.values),
        cmap=cells.colors if isinstance(cells.colors, str) else ListedColormap(cells.colors),
        vmin=cells.ends[0],
        vmax=cells.ends[1],
        edgecolors=edges,
        linewidth=width,
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if cells.written:
        for (row, column), value in np.ndenumerate(cells.values):
            if not math.isnan(value):
                shade = sum(image.cmap(image.norm(np.asarray(value)))[:3]) / 3
                color, text = "white" if shade < 0.5 else "black", cells.text(value)
                axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=color)
    return image


def finish(axes: Axes, x: Axis, y: Axis, cells: bool = False) -> None:
    """Ends, ticks and scales of the axes, and their grid."""
    for axis, of, set_limits, set_scale in (
        (x, axes.xaxis, axes.set_xlim, axes.set_xscale),
        (y, axes.yaxis, axes.set_ylim, axes.set_yscale),
    ):
        if axis.log or axis.names:
            axes.grid(visible=True, axis="both")
        if axis.log:
            set_scale("log")
            logarithmic(of)
        if axis.share:
            percent(of)
        if axis.whole:
            of.set_major_locator(MaxNLocator("auto", integer=True))
        if axis.names:
            of.set_ticks(range(len(axis.names)), [wrapped(name, _ROW_NAME) for name in axis.names])
            ends = (-0.5, len(axis.names) - 0.5)
            set_limits(*(ends[::-1] if axis is y else ends))
        if axis.low is not None or axis.high is not None:
            set_limits(axis.low, axis.high)
    if cells:
        axes.grid(visible=False, axis="both")
