"""Style of the figures: a color-blind-safe palette, axes in percent, long names, reproducible bytes."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from matplotlib import style
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from fedtide.report.charts.fonts import file_of

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
"""Okabe and Ito's colors, similar ones far apart, without yellow, which is too faint for lines on white."""

GRAY, INK = "#8a8a8a", "#000000"
_LOWEST = -1.0  # of an R² in a figure
WIDTH = 9.0
"""Width of every figure in inches, that of the page."""

DPI = 180
"""Dots per inch of a PNG."""

DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
_LEGEND_LETTERS = 120  # over the width of a figure
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
    "pdf.fonttype": 42,
    "svg.hashsalt": "fedtide",
}


@contextmanager
def paper() -> Iterator[None]:
    """Matplotlib's defaults and the rules above, ignoring the user's own configuration."""
    with style.context(["default", _RULES]):
        yield


class Look(NamedTuple):
    """A color, and a number of :data:`DASHES`."""

    color: str
    dash: int


def line_look(number: int) -> Look:
    """Color and dashes of the ``number``-th line; 28 are distinct."""
    turn, color = divmod(number, len(PALETTE))
    return Look(PALETTE[color], turn % len(DASHES))


def line_style(number: int) -> dict[str, Any]:
    """The same as arguments of Matplotlib's ``plot``."""
    look = line_look(number)
    return {"color": look.color, "linestyle": DASHES[look.dash]}


def percent_limits(low: float, high: float) -> tuple[float, float]:
    """Ends of an axis of shares: 0 to 100 % for a wide range, else the range with a margin."""
    if high - low > 0.5:
        low, high = 0.0, 1.0
    room = max(0.04 * (high - low), 0.005)
    return max(low - room, -0.02), min(high + room, 1.02)


def r2_limits(low: float, high: float) -> tuple[float | None, float | None]:
    """Ends of an axis of R², None for an automatic one.

    Values below -1 are out of the picture, unless all are: before a model has learned anything they may be far below.
    """
    return (_LOWEST, high + 0.05 * (high - _LOWEST)) if low < _LOWEST < high else (None, None)


def percent(axis: Axis) -> None:
    """Ticks in percent."""
    axis.set_major_formatter(lambda share, _: f"{100 * share:g} %")


def logarithmic(axis: Axis) -> None:
    """Plain numbers at 1, 2 and 5 times powers of ten."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")


def wrapped(name: str, letters: int) -> str:
    """A name in lines of at most this many letters."""
    return "\n".join(textwrap.wrap(name, max(letters, 12), break_on_hyphens=False)) or name


def legend_layout(names: list[str]) -> tuple[list[str], int]:
    """Names in lines that fit into a figure, and the number of columns for which there is room."""
    lines = [wrapped(name, _LEGEND_LETTERS // 2) for name in names]
    longest = max((len(part) for line in lines for part in line.split("\n")), default=0)
    return lines, max(1, min(len(names), 7, _LEGEND_LETTERS // (longest + 7)))


def png(figure: Figure, **about: str) -> bytes:
    """The figure as a PNG without dates or versions; ``about``: texts in the file, by keyword (``Description``)."""
    return saved(figure, "png", **about)


def saved(figure: Figure, form: str, **about: str) -> bytes:
    """The figure as ``png``, ``svg`` or ``pdf``, without dates or versions."""
    return file_of(figure, format=form, dpi=DPI, metadata={**_METADATA[form], **about})
