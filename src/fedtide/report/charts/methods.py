"""Methods in figures: their names, panels and lines."""

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from fedtide.records.frames import Method, Records, by_method
from fedtide.report.charts.chart import MOST_MARKERS, Axis, Chart, Panel, Series, ranged
from fedtide.report.charts.style import PALETTE, line_look

MOST_LINES = len(PALETTE)
"""Methods that are told apart by their colors alone."""


def method_names(methods: list[Method]) -> dict[Method, str]:
    """Names of methods; without the initializer if all share one."""
    one = len({start for _, start in methods}) == 1
    return {(label, start): label if one else f"{label} · {start}" for label, start in methods}


class Place(NamedTuple):
    """Where a method is drawn: its panel, the name of its line there, and the number of its look."""

    panel: str
    name: str
    number: int


def places_of(methods: list[Method]) -> dict[Method, Place]:
    """Panel and line of each method.

    One panel per algorithm with a line per initializer, so that initializers are easy to compare; with a single
    initializer one panel with a line per algorithm, unless there are too many.
    """
    labels = list(dict.fromkeys(label for label, _ in methods))
    starts = list(dict.fromkeys(start for _, start in methods))
    if len(starts) == 1 and 1 < len(labels) <= MOST_LINES:
        return {(a, i): Place(i, a, labels.index(a)) for a, i in methods}
    return {(a, i): Place(a, i, starts.index(i)) for a, i in methods}


def lines_of_methods(
    records: Records, found: dict[str, pd.DataFrame], x: Axis, y: Axis, first: tuple[Series, ...] = ()
) -> Chart:
    """A panel for each table with columns ``x`` and ``y`` of runs: a line per method with the range over its runs."""
    names = method_names(records.methods)

    def lines(rows: pd.DataFrame) -> Iterator[Series]:
        for method, own in by_method(rows).items():
            look, of = line_look(records.methods.index(method)), own.groupby("x")["y"].agg(["mean", "min", "max"])
            yield ranged(names[method], of, look.color, dash=look.dash, marker="o" if len(of) <= MOST_MARKERS else "")

    panels = tuple(Panel(title if len(found) > 1 else "", (*first, *lines(rows))) for title, rows in found.items())
    return Chart(x, y, panels, 1, 3.2 if len(panels) == 1 else 0.6 + 2.4 * len(panels))
