"""A figure as data, drawn twice: by Matplotlib for files and papers (``printed``), by Plotly on the page (``interactive``)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedtide.core.array_types import Floats
from fedtide.report.charts.style import percent_limits, r2_limits
from fedtide.settings.scores import Score

MOST_MARKERS = 25
"""Longer lines have no markers."""


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        title: quantity and unit. share: values are shares, written in percent.
        low, high: limits; None: those of its values, with a margin.
        names: of the ticks 0, 1, ...; on a y axis from the top. whole: ticks are whole numbers.
    """

    title: str
    share: bool = False
    log: bool = False
    low: float | None = None
    high: float | None = None
    names: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True)
class Series:
    """A line or points, with the range around them.

    Attributes:
        name: series of one name share an entry in the legend.
        x, y: float [n]; NaN interrupts a line. ``y`` is None for a band without a line.
        low, high: the range, float [n] each, or None.
        dash: index into ``style.DASHES``. marker: Matplotlib's, empty for none. size: of the marker, in points.
        width: of the line, in points; 0 for points alone. opacity: of the line and its markers. shade: opacity of the band.
        bars: draw the range as a bar at each point instead of a band.
        listed: whether it is in the legend. note: shown beside the name on the page, such as that a run diverged.
    """

    name: str
    x: Floats
    y: Floats | None
    color: str
    low: Floats | None = None
    high: Floats | None = None
    dash: int = 0
    marker: str = ""
    size: float = 3.5
    width: float = 1.4
    opacity: float = 1.0
    shade: float = 0.18
    bars: bool = False
    listed: bool = True
    note: str = ""


@dataclass(frozen=True)
class Cells:
    """A heat map, whose rows and columns the axes name.

    Attributes:
        values: float [rows, columns], NaN for none. share: values are shares, written in percent.
        colors: Matplotlib's color map. title: of the color bar. missing: color of empty cells, in files.
        low, high: values at the ends of the color map. written: whether cells are large enough for their values.
    """

    values: Floats
    colors: str
    title: str
    missing: str = "#ffffff"
    share: bool = False
    written: bool = True
    low: float = 0.0
    high: float = 1.0

    def text(self, value: float) -> str:
        return f"{100 * value:.0f}" if self.share else f"{value:.2f}"


@dataclass(frozen=True)
class Panel:
    """One part of a figure.

    Attributes:
        title: above it. series: drawn in order. cells: drawn instead.
        sessions: (name, first round, last round) of those to mark on the x axis.
        drifts: x values at which clients' concepts change.
    """

    title: str = ""
    series: tuple[Series, ...] = ()
    cells: Cells | None = None
    sessions: tuple[tuple[str, int, int], ...] = ()
    drifts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A figure: panels in rows from left to right, all with the axes ``x`` and ``y``.

    Attributes:
        columns: panels in a row. height: in inches, at the width of a page.
    """

    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    columns: int
    height: float

    @property
    def rows(self) -> int:
        return -(-len(self.panels) // self.columns)

    @property
    def legend(self) -> list[str]:
        """Names in the legend; empty for a single method."""
        names = list(dict.fromkeys(series.name for panel in self.panels for series in panel.series if series.listed))
        return names if len(names) > 1 else []


def ranged(name: str, of: pd.DataFrame, color: str, **look: Any) -> Series:
    """The column ``mean`` over the index, with the range from ``min`` to ``max``."""
    mean, low, high = (floats(of[column]) for column in ("mean", "min", "max"))
    return Series(name, floats(of.index), mean, color, low, high, **look)


def floats(values: Iterable[float]) -> Floats:
    """Values as an array."""
    return np.asarray(values, dtype=np.float64)


def joined(pieces: Sequence[Floats]) -> Floats:
    """Pieces of a line one after the other, with NaN in between."""
    gap = np.full(1, np.nan)
    parts = [part for piece in pieces for part in (piece, gap)]
    return np.concatenate(parts[:-1]) if parts else np.empty(0)


def stepped(x: Floats, *values: Floats) -> list[Floats]:
    """The corners of lines whose values hold until the next ``x``: first those of ``x``, then those of each line."""
    return [np.repeat(x, 2)[1:], *(np.repeat(line, 2)[:-1] for line in values)]


def score_axis(title: str, score: Score, low: float, high: float) -> Axis:
    """The axis of values of a score from ``low`` to ``high``: logarithmic for a loss over more than a decade."""
    if score.share:
        return Axis(title, True, False, *percent_limits(low, high))
    if not score.lower:
        return Axis(title, False, False, *r2_limits(low, high))
    return Axis(title, log=0 < 10 * low < high)
