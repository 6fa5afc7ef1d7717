"""Charts drawn by Matplotlib, for files."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedtide.report.charts.chart import Axis, Cells, Chart, Panel, Series
from fedtide.report.charts.session_marks import session_labels
from fedtide.report.charts.style import DASHES, GRAY, INK, WIDTH, legend_layout, logarithmic, percent, wrapped

_TITLE = 84  # letters of a title over the width of a figure
_ROW_NAME = 44  # letters in a line of the name of a row
_MOST_LETTERS = 110  # of the names of ticks over the width of a figure
_LINE, _LEGEND_LINE = 0.15, 0.19  # heights of a line of text in inches
_MOST_TICKS = 12  # sessions whose ends can be ticks


def drawn(chart: Chart) -> Figure:
    """The figure; to be called, and the figure saved, inside :func:`fedtide.report.charts.style.paper`."""
    names, legend_columns = legend_layout(chart.legend)
    titles = [wrapped(panel.title, _TITLE // chart.columns) for panel in chart.panels]
    figure = Figure(figsize=(WIDTH, chart.height + _room(chart, titles, names, legend_columns)), layout="constrained")
    grid = figure.subplots(chart.rows, chart.columns, sharex=True, sharey=True, squeeze=False)
    for spare in list(grid.flat)[len(chart.panels) :]:
        spare.set_visible(False)
    for number, (panel, axes) in enumerate(zip(chart.panels, grid.flat, strict=False)):
        if panel.cells is not None:
            image = _cells(axes, panel.cells)
        for series in panel.series:
            _draw(axes, series)
        named = bool(panel.sessions) and number < chart.columns
        _marks(axes, panel, chart.columns, named)
        axes.set_title(titles[number], pad=14 if named else None)
        axes.tick_params(labelbottom=number + chart.columns >= len(chart.panels))
        if number == 0 or chart.y.log:
            finish(axes, chart.x, chart.y, panel.cells is not None)
        if sum(len(name) + 2 for name in chart.x.names) * chart.columns > _MOST_LETTERS:
            axes.tick_params(axis="x", labelrotation=90)
    if (cells := chart.panels[0].cells) is not None:
        bar = figure.colorbar(image, ax=grid, fraction=0.03, pad=0.02, label=cells.title)
        if cells.share:
            percent(bar.ax.yaxis)
        bar.outline.set_visible(False)
    figure.supxlabel(chart.x.title, fontsize=9)
    figure.supylabel(chart.y.title, fontsize=9)
    if names:
        shown = [pair for axes in grid.flat for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
        handles = {name: handle for handle, name in reversed(shown)}  # the first of each name
        figure.legend([handles[name] for name in chart.legend], names, loc="outside upper center", ncols=legend_columns)
    return figure


def _room(chart: Chart, titles: list[str], legend: list[str], legend_columns: int) -> float:
    """Inches for names that need several lines, and for a legend of more than two."""
    lines = chart.rows * sum(wrapped(name, _ROW_NAME).count("\n") for name in chart.y.names)
    lines += chart.rows * max(title.count("\n") for title in titles)
    depth = max((name.count("\n") + 1 for name in legend), default=0)
    return _LINE * lines + _LEGEND_LINE * max(0, -(-len(legend) // legend_columns) * depth - 2)


def _draw(axes: Axes, series: Series) -> None:
    color, x, y = series.color, series.x, series.y
    if series.low is not None and series.high is not None:
        if series.bars:
            axes.vlines(x, series.low, series.high, color=color, linewidth=1.2, alpha=0.6)
        else:
            label = series.name if y is None else None
            axes.fill_between(x, series.low, series.high, color=color, alpha=series.shade, lw=0, label=label)
    if y is None:
        return
    look: dict[str, Any] = {"linestyle": DASHES[series.dash], "linewidth": series.width}
    if not series.width:
        look = {"linestyle": "none", "mew": 1.8 if series.marker in "|x" else 0}
    look |= {"color": color, "alpha": series.opacity, "marker": series.marker, "markersize": series.size}
    axes.plot(x, y, label=series.name, **look)


def _marks(axes: Axes, panel: Panel, columns: int, named: bool) -> None:
    """A line where a session begins, its name above; every other session is shaded; drifts are dashed lines."""
    if 0 < len(panel.sessions) <= _MOST_TICKS and columns == 1:
        axes.set_xticks([0, *(last for _, _, last in panel.sessions)])
    for number, (_, first, last) in enumerate(panel.sessions):
        if first > 1:
            axes.axvline(first - 0.5, color=GRAY, linewidth=0.6, zorder=0.5)
        if number % 2:
            axes.axvspan(first - 0.5, last + 0.5, color="#f4f4f4", linewidth=0, zorder=0)
    for middle, name in session_labels(panel.sessions, columns) if named else []:
        place: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate(name, (middle, 1), (0, 3), ha="center", fontsize=8, color="#555555", **place)
    for drift in panel.drifts:
        axes.axvline(drift, color=INK, linestyle=DASHES[1], linewidth=0.8, zorder=0.6)


def _cells(axes: Axes, cells: Cells) -> Any:
    """The heat map; its image, for the color bar."""
    rows, columns = cells.values.shape
    edges, width = ("white", 1.0) if cells.written else ("face", 0.0)
    axes.grid(visible=False, axis="both")
    axes.set_facecolor(cells.missing)
    image = axes.pcolormesh(
        np.arange(columns + 1) - 0.5,  # edges: of the center of a single row no height follows
        np.arange(rows + 1) - 0.5,
        np.ma.masked_invalid(cells.values),
        cmap=cells.colors,
        vmin=cells.low,
        vmax=cells.high,
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
