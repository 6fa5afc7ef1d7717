"""Charts as JSON for Plotly, which draws them on the page."""

from __future__ import annotations

import html
import math
import textwrap
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from fedtide.core.array_types import Floats
from fedtide.report.charts.chart import Axis, Cells, Chart, Panel, Series
from fedtide.report.charts.session_marks import session_labels, session_ticks
from fedtide.report.charts.style import INK

Json = dict[str, Any]

MOST_POINTS = 3000
"""Of all lines of a chart; more are thinned out, so that the page stays small."""

CONFIG: Json = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}
_PIXELS = 88  # per inch of the figure in files
_FEWEST_POINTS = 24
_MOST_TOGETHER = 10  # series of a panel whose values one box can show
_TOP, _BOTTOM, _LEFT, _RIGHT = 28, 52, 66, 14
_LINE = 15
_NAME = 26  # letters of the name of a row
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "x": "x", "|": "line-ns-open"}
_ON_BOTH = {INK: "#7d7d7d"}
"""Colors that cannot be seen on a dark page, and those that can be seen on both."""


def _template(ink: str, soft: str, rule: str, box: str) -> Json:
    axis = {
        "color": soft,
        "gridcolor": rule,
        "linecolor": soft,
        "zeroline": False,
        "minor": {"gridcolor": rule},
        "title": {"font": {"color": ink}},
    }
    clear = "rgba(0,0,0,0)"
    return {
        "layout": {
            "paper_bgcolor": clear,
            "plot_bgcolor": clear,
            "font": {"color": ink, "family": "system-ui, DejaVu Sans, Helvetica, Arial, sans-serif", "size": 12},
            "hoverlabel": {"bgcolor": box, "bordercolor": rule, "font": {"color": ink}},
            "modebar": {"bgcolor": clear, "color": soft, "activecolor": ink},
            "xaxis": axis,
            "yaxis": axis,
        }
    }


TEMPLATES = {
    "light": _template("#1c1c1c", "#5b5b5b", "#dddddd", "#ffffff"),
    "dark": _template("#e6e6e6", "#a9a9a9", "#3d4043", "#26282b"),
}


def color(chosen: str) -> str:
    """A color that can be seen on light and on dark pages."""
    return _ON_BOTH.get(chosen, chosen)


def thinned_out(chart: Chart) -> bool:
    """Whether the interactive figure leaves points out."""
    most = _share(chart)
    return any(len(series.x) > most for panel in chart.panels for series in panel.series)


def figure(chart: Chart) -> Json:
    """Traces of the chart, and its layouts on a wide and on a narrow page."""
    most, data = _share(chart), list[Json]()
    for number, panel in enumerate(chart.panels, start=1):
        place = {"xaxis": _axis_name("x", number), "yaxis": _axis_name("y", number)}
        if panel.cells is not None:
            data.append(_cells(chart, panel.cells, last=number == len(chart.panels)) | place)
        for series in panel.series:
            data += [trace | place for trace in _traces(series, chart.x, panel.y or chart.y, most)]
    return {"data": data, "wide": _layout(chart, chart.columns, 1.0), "narrow": _layout(chart, 1, 2.5)}


def _share(chart: Chart) -> int:
    """Most points of one line."""
    return max(_FEWEST_POINTS, MOST_POINTS // max(1, sum(len(panel.series) for panel in chart.panels)))


def _axis_name(letter: str, number: int) -> str:
    return letter if number == 1 else f"{letter}{number}"


# Traces


def _traces(series: Series, x: Axis, y: Axis, most: int) -> list[Json]:
    shade = color(series.color)
    kept = kept_points(series.y if series.y is not None else series.low, most)
    common = {"type": "scatter", "name": _escaped(series.name), "legendgroup": series.name, "showlegend": False}
    label = _escaped(f"{series.name} ({series.note})" if series.note else series.name)
    ranged = series.low is not None and series.high is not None and not np.array_equal(series.low, series.high, True)
    traces: list[Json] = []
    if ranged and not series.bars:
        traces.append(common | _band(series, kept, shade))
    low, high = (values[kept] if values is not None else None for values in (series.low, series.high))
    middle = (
        series.y[kept] if series.y is not None else (low + high) / 2 if low is not None and high is not None else None
    )
    if middle is None:
        return traces
    value, of = ("x", x) if y.names else ("y", y)
    sign = ".1%" if of.share else ".4~g"
    text = f"%{{{value}:{sign}}}"
    modes = (("lines", series.width or series.y is None), ("markers", series.marker))
    line: Json = {
        "mode": "+".join(name for name, drawn in modes if drawn),
        "x": _numbers(series.x[kept]),
        "y": _numbers(middle),
        "line": {
            "color": shade,
            "width": 1.3 * series.width if series.y is not None else 0,
            "dash": _DASHES[series.dash],
        },
    }
    if series.steps:
        line["line"]["shape"] = "hv"
    if series.marker:
        line["marker"] = {"symbol": _SYMBOLS[series.marker], "size": 1.6 * series.size, "color": shade}
        line["opacity"] = series.opacity
        if series.marker == "|":
            line["marker"]["line"] = {"width": 2.5, "color": shade}
    if ranged and low is not None and high is not None:
        line["customdata"] = [list(pair) for pair in zip(_numbers(low), _numbers(high), strict=True)]
        text = f"%{{customdata[0]:{sign}}} to %{{customdata[1]:{sign}}}"
        if series.y is not None:
            text = f"%{{y:{sign}}} ({text})"
        if series.bars:
            up, down = _numbers(high - middle), _numbers(middle - low)
            line["error_y"] = {"symmetric": False, "array": up, "arrayminus": down, "thickness": 1.2, "width": 0}
    return [*traces, common | line | {"hovertemplate": f"{text}<extra>{label}</extra>"}]


def _band(series: Series, kept: np.ndarray[Any, np.dtype[np.int64]], shade: str) -> Json:
    """The range as closed outlines, one per piece of the line."""
    assert series.low is not None
    assert series.high is not None
    x, low, high = (values[kept] for values in (series.x, series.low, series.high))
    xs, ys = list[float | None](), list[float | None]()
    for piece in np.split(np.arange(len(x)), np.flatnonzero(np.isnan(low))):
        at = piece[~np.isnan(low[piece])]
        if not len(at):
            continue
        outline, bottom, top = x[at], low[at], high[at]
        if series.steps:
            outline, bottom, top = np.repeat(outline, 2)[1:], np.repeat(bottom, 2)[:-1], np.repeat(top, 2)[:-1]
        xs += [*_numbers(outline), *_numbers(outline[::-1]), None]
        ys += [*_numbers(bottom), *_numbers(top[::-1]), None]
    fill = f"rgba({', '.join(str(int(shade[at : at + 2], 16)) for at in (1, 3, 5))}, {series.shade + 0.04:.2f})"
    band = {"mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": fill, "hoverinfo": "skip"}
    return band | {"x": xs[:-1], "y": ys[:-1]}


def kept_points(values: Floats | None, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices of at most about ``most`` points that keep the shape of a line: lowest and highest of each stretch, and gaps."""
    values = np.empty(0) if values is None else values
    every = np.arange(len(values))
    if len(values) <= most:
        return every
    kept = {0, len(values) - 1, *np.flatnonzero(np.isnan(values)).tolist()}
    for stretch in np.array_split(every, most // 2):
        known = stretch[~np.isnan(values[stretch])]
        if len(known):
            kept |= {int(known[values[known].argmin()]), int(known[values[known].argmax()])}
    return np.array(sorted(kept))


def _named_cells(chart: Chart, cells: Cells) -> Json:
    """Cells whose values are the numbers of names, a color each."""
    count = len(cells.names)
    steps = [[edge / count, shade] for n, shade in enumerate(cells.colors) for edge in (n, n + 1)]
    text = f"{_escaped(chart.x.title)} %{{x}}, {_escaped(chart.y.title.lower())} %{{y}}: %{{z}}"
    return {
        "type": "heatmap",
        "z": [_numbers(row) for row in cells.values],
        "x0": cells.first,
        "zmin": cells.ends[0],
        "zmax": cells.ends[1],
        "colorscale": steps,
        "hoverongaps": False,
        "hovertemplate": f"{text}<extra></extra>",
        "colorbar": {
            "tickvals": list(range(count)),
            "ticktext": [_escaped(name) for name in cells.names],
            "ticks": "",
            "thickness": 10,
            "outlinewidth": 0,
        },
    }


def _cells(chart: Chart, cells: Cells, last: bool) -> Json:
    if isinstance(cells.colors, tuple):
        return _named_cells(chart, cells)
    rows, columns = cells.values.shape
    sign = ".1%" if cells.share else ".2f"
    across, down = chart.x.names or tuple(map(str, range(columns))), chart.y.names or tuple(map(str, range(rows)))
    text = f"%{{customdata[1]}}, {_escaped(chart.x.title.lower())} %{{customdata[0]}}: %{{z:{sign}}}"
    trace: Json = {
        "type": "heatmap",
        "z": [_numbers(row) for row in cells.values],
        "customdata": [[[_escaped(x), _escaped(y)] for x in across] for y in down],
        "zmin": _number(cells.low),
        "zmax": _number(cells.high),
        "colorscale": [[t / 8, to_hex(colormaps[cells.colors](t / 8))] for t in range(9)],
        "hoverongaps": False,
        "hovertemplate": f"{text}<extra></extra>",
        "showscale": last,
        "colorbar": {
            "title": {"text": cells.title, "side": "right", "font": {"size": 12}},
            "tickformat": "~%" if cells.share else "",
            "ticks": "",
            "thickness": 10,
            "outlinewidth": 0,
        },
    }
    if cells.written:
        trace |= {"xgap": 1, "ygap": 1, "texttemplate": f"%{{z:{'.0%' if cells.share else sign}}}"}
    return trace


def _numbers(values: Floats) -> list[float | None]:
    """Four digits are more than a screen can show; None for NaN."""
    return [None if math.isnan(value) else _number(value) for value in values.tolist()]


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else float(f"{value:.4g}")


# Layouts


def _layout(chart: Chart, columns: int, crowd: float) -> Json:
    """Panels in so many columns; ``crowd``: how much less room there is for text than over a wide page."""
    count = len(chart.panels)
    rows = -(-count // columns)
    letters = int(110 / crowd / columns)
    titles = [_title(panel.title, letters) for panel in chart.panels]
    deepest = max(title.count("<br>") + 1 if title else 0 for title in titles)
    named = any(panel.sessions for panel in chart.panels)
    gap = _LINE * deepest + (20 if columns < chart.columns or chart.x.names else 14)
    above = _LINE * deepest + (_LINE if named else 0)
    row = max(chart.height * _PIXELS / chart.rows - gap, 150)
    inside = rows * row + (rows - 1) * gap
    own = any(panel.y for panel in chart.panels)
    between = 0.09 if own else 0.03
    width = (1 - between * (columns - 1)) / columns
    layout: Json = {
        "height": round(inside + _TOP + above + _BOTTOM),
        "margin": {"t": _TOP + above, "b": _BOTTOM, "l": _LEFT if chart.y.title or own else 10, "r": _RIGHT},
        "showlegend": False,
        "hovermode": "x unified" if _together(chart) else "closest",
        "dragmode": "zoom" if crowd == 1 else False,
        "uirevision": "kept",
        "annotations": [],
    }
    for number, (panel, title) in enumerate(zip(chart.panels, titles, strict=True)):
        line, column = divmod(number, columns)
        left, top = column * (width + between), 1 - line * (row + gap) / inside
        x, y = _axis_name("x", number + 1), _axis_name("y", number + 1)
        labeled = number + columns >= count or columns < chart.columns
        across = _axis(chart.x, crowd) | {"domain": _domain(left, left + width), "anchor": y}
        across["showticklabels"] = labeled
        up = _axis(panel.y or chart.y, crowd) | {"domain": _domain(top - row / inside, top), "anchor": x}
        up |= {"showticklabels": column == 0 or own}
        if panel.cells is None:
            across |= _sessions(panel, columns * crowd)
        if panel.drifts:
            layout.setdefault("shapes", []).extend(_mark(place, x, y) for place in panel.drifts)
        if layout["hovermode"] == "x unified":
            across["unifiedhovertitle"] = {"text": f"{_escaped(chart.x.title)}: %{{x}}"}
        if panel.y is not None:
            up["title"] = {"text": _escaped(panel.y.title)}
        if chart.y.names:
            up["range"] = [len(chart.y.names) - 0.5, -0.5]
        up["showgrid"] = panel.cells is None
        if number and not own:
            across["matches"], up["matches"] = "x", "y"
        layout[x.replace("x", "xaxis")], layout[y.replace("y", "yaxis")] = across, up
        at = {"xref": f"{x} domain", "yref": f"{y} domain", "y": 1, "yanchor": "bottom", "showarrow": False}
        first = bool(panel.sessions) and line == 0
        if title:
            above_names = {"x": 0, "xanchor": "left", "align": "left", "yshift": _LINE if first else 0}
            layout["annotations"].append(at | above_names | {"text": f"<b>{title}</b>"})
        for middle, name in session_labels(panel.sessions, math.ceil(columns * crowd), chart.groups) if first else []:
            layout["annotations"].append(at | {"xref": x, "x": middle, "text": name, "font": {"size": 10}})
    below = _axis_titles(chart, letters * columns)
    layout["annotations"] += below
    extra = _LINE * sum(title["text"].count("<br>") for title in below)
    layout["height"] += extra
    layout["margin"]["b"] += extra
    return layout


def _together(chart: Chart) -> bool:
    """Whether one box can show the values of all series of a panel at one x."""
    if any(panel.cells for panel in chart.panels):
        return False
    lines = not chart.y.names and all(series.width for panel in chart.panels for series in panel.series)
    return lines and max(len(panel.series) for panel in chart.panels) <= _MOST_TOGETHER


def _axis(axis: Axis, crowd: float) -> Json:
    found: Json = {"showgrid": False, "automargin": True, "exponentformat": "none", "ticks": ""}
    if axis.log:
        found |= {"type": "log", "showgrid": True}
    if axis.share:
        found["tickformat"] = ".2~%"
    if axis.whole:
        found |= {"tickformat": "d"}
    if axis.low is not None and axis.high is not None:
        found["range"] = [_number(axis.low), _number(axis.high)]
    if axis.names:
        names = [_escaped(_short(name, int(2 * _NAME / crowd) if crowd == 1 else _NAME)) for name in axis.names]
        found |= {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": names}
    return found


def _sessions(panel: Panel, columns: float) -> Json:
    """Lines where sessions begin, and ticks where they end."""
    if not panel.sessions:
        return {}
    begins = [first - 0.5 for _, first, _ in panel.sessions if first > 1]
    marks: Json = {"minor": {"tickmode": "array", "tickvals": begins, "showgrid": True, "ticks": ""}}
    if ticks := session_ticks(panel.sessions, math.ceil(columns)):
        marks |= {"tickmode": "array", "tickvals": ticks}
    return marks


def _mark(place: float, x: str, y: str) -> Json:
    """A dashed line from bottom to top of a panel."""
    ends = {"x0": place, "x1": place, "y0": 0, "y1": 1, "xref": x, "yref": f"{y} domain"}
    return {"type": "line", "layer": "below", "line": {"color": color(INK), "width": 1.1, "dash": "dash"}} | ends


def _axis_titles(chart: Chart, letters: int) -> list[Json]:
    """The common titles, in the middle below and on the left."""
    paper = {"xref": "paper", "yref": "paper", "showarrow": False}
    below = {"x": 0.5, "y": 0, "yanchor": "top", "yshift": -22, "text": _title(chart.x.title, letters)}
    left = {"x": 0, "y": 0.5, "xanchor": "right", "xshift": -46, "textangle": -90, "text": _escaped(chart.y.title)}
    return [paper | place for place in (below, left) if place["text"]]


def _domain(low: float, high: float) -> list[float]:
    return [round(max(low, 0.0), 5), round(min(high, 1.0), 5)]


def _title(text: str, letters: int) -> str:
    """At most two lines."""
    lines = textwrap.wrap(text, max(letters, 16), max_lines=2, placeholder="…", break_on_hyphens=False)
    return "<br>".join(map(_escaped, lines))


def _short(name: str, letters: int) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
