"""Style of the figures: a colour-blind-safe palette, axes in percent, reproducible PNG bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.settings.scores import Score

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, similar ones far apart, without yellow, which is too faint for lines on white."""

GREY = "#8a8a8a"
_LOWEST = -1.0  # of an R² in a figure
WIDTH = 9.0
"""Width of every figure in inches, that of the page."""

_DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
_RULES: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 9,
}


@contextmanager
def paper() -> Iterator[None]:
    """Matplotlib's defaults and the rules above, ignoring the user's own configuration."""
    with style.context(["default", _RULES]):
        yield


def line_style(number: int) -> dict[str, Any]:
    """Colour and dashes of the ``number``-th line; 28 are distinct."""
    turn, colour = divmod(number, len(PALETTE))
    return {"color": PALETTE[colour], "linestyle": _DASHES[turn % len(_DASHES)]}


def percent_axis(axes: Axes, low: float, high: float) -> None:
    """The y axis of ``axes`` in percent: 0 to 100 for a wide range, else the range with a margin."""
    if high - low > 0.5:
        low, high = 0.0, 1.0
    room = max(0.04 * (high - low), 0.005)
    axes.set_ylim(max(low - room, -0.02), min(high + room, 1.02))
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")


def score_axis(axes: Axes, score: Score, low: float, high: float) -> None:
    """The y axis of ``axes`` for values of a score: in percent, or logarithmic for a loss over more than a decade.

    An R² below -1 is out of the picture, unless all are: before a model has learnt anything it may be far below.
    """
    if score.share:
        percent_axis(axes, low, high)
    elif not score.lower:
        if low < _LOWEST < high:
            axes.set_ylim(_LOWEST, high + 0.05 * (high - _LOWEST))
    elif 0 < 10 * low < high:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")


def png(figure: Figure) -> bytes:
    """The figure as a PNG without dates or versions."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=180, metadata={"Software": None})
    return stream.getvalue()
