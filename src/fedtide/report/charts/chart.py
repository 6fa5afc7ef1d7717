"""A figure as data, drawn twice: by Matplotlib for files and papers (``printed``), by Plotly on the page (``interactive``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedtide.core.array_types import Floats
from fedtide.report.charts.style import percent_limits, r2_limits
from fedtide.settings.scores import Score

TOGETHER = " = "
"""Between the names of a line of several methods."""

MOST_MARKERS = 25
"""Points of a line that are marked one by one."""


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        title: what it is, with its unit. share: whether its values are shares, written in percent.
        low, high: limits; None: those of its values, with a margin.
        names: of the places 0, 1, ...; on a y axis from the top. whole: whether its ticks are whole numbers.
    """

    title: str
    share: bool = False
    log: bool = False
    low: float | None = None
    high: float | None = None
    names: tuple[str, ...] = ()
    whole: bool = False

    def text(self, value: float) -> str:
        return f"{100 * value:.1f} %" if self.share else f"{value:.4g}"


@dataclass(frozen=True)
class Series:
    """A line or points, with the range around them.

    Attributes:
        name: series of one name, of all panels, have one entry in the legend, which shows and hides them together.
        x, y: float [n]; NaN interrupts a line. ``y`` is None for a band without a line.
        low, high: the range, float [n] each, or None.
        color, dash: of the line; dash is a number, see ``style.line_style``.
        marker: Matplotlib's, or empty for none. size: of the marker, in points.
        width: of the line, in points; 0 for points alone. opacity: of the line and its markers. shade: opacity of the band.
        steps: whether a value holds until the next one. bars: whether the range is a bar at each point instead of a band.
        listed: whether it is in the legend. note: further description, e.g. of a run that diverged.
        labels: text at the points, in files instead of the legend.
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
    steps: bool = False
    bars: bool = False
    listed: bool = True
    note: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cells:
    """A table of colored cells, named by the axes.

    Attributes:
        values: float [rows, columns], NaN for none. share: whether they are shares, written in percent.
        colors: Matplotlib's name of the color scale, or the colors of the values 0, 1, ... with ``names``. title: of that
            scale. missing: color of empty cells, in files.
        low, high: values at its ends. written: whether cells are large enough for their values.
        names: of the values, where they are whole numbers. first: number of the first column.
    """

    values: Floats
    colors: str | tuple[str, ...]
    title: str
    missing: str = "#ffffff"
    share: bool = False
    written: bool = True
    low: float = 0.0
    high: float = 1.0
    names: tuple[str, ...] = ()
    first: int = 0

    @property
    def ends(self) -> tuple[float, float]:
        """Values at the ends of the color scale."""
        return (-0.5, len(self.names) - 0.5) if self.names else (self.low, self.high)

    def text(self, value: float) -> str:
        return f"{100 * value:.0f}" if self.share else f"{value:.2f}"


@dataclass(frozen=True)
class Panel:
    """One part of a figure.

    Attributes:
        title: above it. series: drawn in order. cells: drawn instead.
        sessions: (session, first round, last round) of those to mark on the x axis.
        drifts: places on the x axis to mark, where concepts of clients change.
        y: its own y axis, where panels do not share one.
    """

    title: str = ""
    series: tuple[Series, ...] = ()
    cells: Cells | None = None
    sessions: tuple[tuple[int, int, int], ...] = ()
    drifts: tuple[float, ...] = ()
    y: Axis | None = None


@dataclass(frozen=True)
class Chart:
    """A figure: panels in rows from left to right, all with the axes ``x`` and ``y``.

    Attributes:
        columns: panels in a row. height: in inches, at the width of a page.
        groups: number of groups of devices that alternate between the marked sessions.
    """

    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    columns: int
    height: float
    groups: int = 0

    @property
    def rows(self) -> int:
        return -(-len(self.panels) // self.columns)

    @property
    def legend(self) -> dict[str, Series]:
        """The first series of each name in the legend; empty for a single method."""
        found: dict[str, Series] = {}
        for series in (series for panel in self.panels for series in panel.series if series.listed):
            found.setdefault(series.name, series)
        return found if len(TOGETHER.join(found).split(TOGETHER)) > 1 else {}

    def described(self) -> str:
        """The figure in words: its axes, its panels, and the last value of each line."""
        named = [panel.title for panel in self.panels if panel.title]
        vertical = self.y.title or ", ".join(panel.y.title for panel in self.panels if panel.y)
        parts = [f"Across: {self.x.title}.", f"Upwards: {vertical}." if vertical else ""]
        if named and len(self.panels) > 1:
            parts.append(f"{len(self.panels)} panels: {'; '.join(named)}.")
        if self.panels[0].cells is None and (values := "; ".join(self._last_values())):
            parts.append(f"Values at the right end: {values}.")
        return " ".join(filter(None, parts))

    def _last_values(self) -> Iterable[str]:
        for panel in self.panels:
            axis, many = panel.y or self.y, len(self.panels) > 1
            names = {each.name for each in panel.series}
            for series in (each for each in panel.series if each.listed and each.y is not None and not axis.names):
                if len(of := series.name.split(TOGETHER)) > 1 and names.intersection(of):
                    continue  # its methods go on apart
                known = series.y[~np.isnan(series.y)] if series.y is not None else np.empty(0)
                if len(known):
                    words = dict.fromkeys([*([panel.title] if many else []), series.name])
                    yield f"{', '.join(filter(None, words))} {axis.text(float(known[-1]))}"


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


def score_axis(title: str, score: Score, low: float, high: float) -> Axis:
    """The axis of values of a score from ``low`` to ``high``: logarithmic for a loss over more than a decade."""
    if score.share:
        return Axis(title, True, False, *percent_limits(low, high))
    if not score.lower:
        return Axis(title, False, False, *r2_limits(low, high))
    return Axis(title, log=0 < 10 * low < high)
