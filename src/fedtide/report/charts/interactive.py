"""Charts as figures of Plotly, which draws them on the page."""

import html
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb
from plotly.subplots import make_subplots

from fedtide.core.array_types import Floats
from fedtide.report.charts.chart import Axis, Cells, Chart, Series
from fedtide.report.charts.session_marks import session_labels
from fedtide.report.charts.style import GRAY, INK

_PIXELS = 88  # per inch of the figure in files
_LINE = 20  # pixels of a line of text
_LETTERS = 110  # of a title over the width of the page
_NAME = 52  # letters of the name of a row
_MOST_TOGETHER = 10  # series of a panel whose values one box can show
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "x": "x", "|": "line-ns-open"}


def div(chart: Chart, name: str) -> str:
    """The figure as an HTML element of that id; the page has Plotly's library once."""
    config = {
        "responsive": True,
        "displaylogo": False,
        "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    }
    text: str = figure(chart).to_html(config=config, include_plotlyjs=False, full_html=False, div_id=name)
    return text


def figure(chart: Chart) -> go.Figure:
    """The figure, as wide as its element."""
    height = chart.height * _PIXELS
    titles = [_short(panel.title, _LETTERS // chart.columns) for panel in chart.panels]
    drawn = make_subplots(
        rows=chart.rows,
        cols=chart.columns,
        shared_xaxes="all",
        shared_yaxes="all",
        horizontal_spacing=0.03,
        vertical_spacing=min(2.2 * _LINE / height, 0.9 / chart.rows),
        subplot_titles=titles,
        x_title=html.escape(chart.x.title, quote=False),
        y_title=html.escape(chart.y.title, quote=False),
    )
    drawn.update_annotations(font_size=13)
    listed = set(chart.legend)
    for number, panel in enumerate(chart.panels):
        row, column = number // chart.columns + 1, number % chart.columns + 1
        if panel.cells is not None:
            drawn.add_trace(_heatmap(chart, panel.cells), row, column)
        for series in panel.series:
            for trace in _traces(series, chart):
                if series.listed and series.name in listed and trace.hoverinfo != "skip":
                    trace.showlegend = True
                    listed.remove(series.name)
                drawn.add_trace(trace, row, column)
        for _, first, _ in panel.sessions[1:]:
            drawn.add_vline(first - 0.5, row, column, layer="below", line={"color": GRAY, "width": 0.8})
        for middle, label in session_labels(panel.sessions, chart.columns) if row == 1 else []:
            place = {"y": 1, "yref": "y domain", "yanchor": "top", "showarrow": False, "font_size": 10}
            drawn.add_annotation(x=middle, text=label, row=row, col=column, **place)
        for drift in panel.drifts:
            drawn.add_vline(drift, row, column, layer="below", line={"color": INK, "width": 1, "dash": "dash"})
    drawn.update_yaxes(_axis(chart.y))
    if chart.y.names:
        drawn.update_yaxes(range=[len(chart.y.names) - 0.5, -0.5])
    drawn.update_xaxes(_axis(chart.x) | {"showgrid": chart.x.log})
    lines = not chart.y.names and all(series.width for panel in chart.panels for series in panel.series)
    together = lines and 0 < max(len(panel.series) for panel in chart.panels) <= _MOST_TOGETHER
    longest = max(map(len, chart.legend), default=0) + 8
    above = 3 * _LINE + (_LINE * -(-len(chart.legend) // max(1, _LETTERS // longest)) if chart.legend else 0)
    top = 1 - 1.5 * _LINE / (height + above)  # below the buttons
    return drawn.update_layout(
        template="plotly_white",
        height=round(height + above + 3 * _LINE),
        margin={"t": above, "b": 3 * _LINE, "l": 70 if chart.y.title else 10, "r": 14},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": top, "yref": "container", "yanchor": "top"},
        hovermode="x unified" if together else "closest",
    )


def _traces(series: Series, chart: Chart) -> Iterator[go.Scatter]:
    """The band of a series, and its line or points."""
    name = html.escape(series.name, quote=False)
    look = {"name": name, "legendgroup": series.name, "showlegend": False}
    value, axis = ("x", chart.x) if chart.y.names else ("y", chart.y)
    line: dict[str, Any] = {}
    sign = ".1%" if axis.share else ".4~g"
    text = f"%{{{value}:{sign}}}"
    low, high = series.low, series.high
    if low is not None and high is not None and not np.array_equal(low, high, True):
        if not series.bars:
            yield go.Scatter(**look, **_band(series, low, high))
        low, high = low.astype(np.float32), high.astype(np.float32)
        text += f" (%{{customdata[0]:{sign}}} to %{{customdata[1]:{sign}}})"
        line["customdata"] = np.stack([low, high], axis=1)
        if series.bars and series.y is not None:
            middle = series.y.astype(np.float32)
            up, down = high - middle, middle - low
            line["error_y"] = {"symmetric": False, "array": up, "arrayminus": down, "thickness": 1.2, "width": 0}
    if series.y is None:
        return
    shown = {"lines": bool(series.width), "markers": bool(series.marker)}
    note = f" ({html.escape(series.note)})" if series.note else ""
    yield go.Scatter(
        **look,
        **line,
        x=series.x.astype(np.float32),
        y=series.y.astype(np.float32),
        mode="+".join(part for part, there in shown.items() if there),
        opacity=series.opacity,
        line={"color": series.color, "width": 1.3 * series.width, "dash": _DASHES[series.dash]},
        marker={
            "symbol": _SYMBOLS.get(series.marker, "circle"),
            "size": 1.6 * series.size,
            "color": series.color,
            "line": {"width": 2.5 if series.marker == "|" else 0, "color": series.color},
        },
        hovertemplate=f"{text}<extra>{name}{note}</extra>",
    )


def _band(series: Series, low: Floats, high: Floats) -> dict[str, object]:
    """The range as closed outlines, one per piece of the line."""
    xs: list[Floats] = []
    ys: list[Floats] = []
    for piece in np.split(np.arange(len(low)), np.flatnonzero(np.isnan(low))):
        at = piece[~np.isnan(low[piece])]
        xs += [series.x[at], series.x[at][::-1], np.full(1, np.nan)]
        ys += [low[at], high[at][::-1], np.full(1, np.nan)]
    red, green, blue = (round(255 * part) for part in to_rgb(series.color))
    return {
        "x": np.concatenate(xs).astype(np.float32),
        "y": np.concatenate(ys).astype(np.float32),
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": f"rgba({red}, {green}, {blue}, {series.shade})",
        "hoverinfo": "skip",
    }


def _heatmap(chart: Chart, cells: Cells) -> go.Heatmap:
    sign = ".1%" if cells.share else ".2f"
    x, y = (html.escape(axis.title, quote=False) for axis in (chart.x, chart.y))
    return go.Heatmap(
        z=cells.values.astype(np.float32),
        zmin=cells.low,
        zmax=cells.high,
        colorscale=[[step / 8, to_hex(colormaps[cells.colors](step / 8))] for step in range(9)],
        colorbar={"title": cells.title, "tickformat": "~%" if cells.share else "", "thickness": 10},
        hoverongaps=False,
        hovertemplate=f"{y} %{{y}}, {x} %{{x}}: %{{z:{sign}}}<extra></extra>",
        xgap=int(cells.written),
        ygap=int(cells.written),
        texttemplate=f"%{{z:{'.0%' if cells.share else sign}}}" if cells.written else None,
    )


def _axis(axis: Axis) -> dict[str, object]:
    look: dict[str, object] = {"zeroline": False, "automargin": True, "exponentformat": "none"}
    if axis.log:
        look["type"] = "log"
    if axis.share:
        look["tickformat"] = ".2~%"
    if axis.whole:
        look["tickformat"] = "d"
    if axis.low is not None and axis.high is not None:
        look["range"] = [axis.low, axis.high]
    if axis.names:
        look |= {"tickvals": list(range(len(axis.names))), "ticktext": [_short(name, _NAME) for name in axis.names]}
        look["showgrid"] = False
    return look


def _short(name: str, letters: int) -> str:
    lines = textwrap.wrap(name, max(letters, 16), max_lines=2, placeholder="…", break_on_hyphens=False)
    return "<br>".join(html.escape(line, quote=False) for line in lines)
