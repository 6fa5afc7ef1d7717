"""The score over rounds, bytes and simulated seconds."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fedtide.records.frames import Records, by_method
from fedtide.report.charts.chart import MOST_MARKERS, Axis, Chart, Panel, Series, floats, joined, score_axis, stepped
from fedtide.report.charts.methods import Place, places_of
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.session_marks import alarm_marks, drift_marks, marks_caption, session_spans
from fedtide.report.charts.style import GRAY, line_look
from fedtide.report.formats import byte_unit, second_unit
from fedtide.report.parts import figures

_RANGE = (
    "Of {}. Lines: mean of the complete runs of a method; shading: range over its seeds. Dotted, ending in a cross: a run that "
    "diverged or did not finish. Where lines coincide, the last one is on top."
)
_SECONDS = (
    "Of {}; in lockstep a round lasts as long as its slowest client. Lines: mean of the complete runs of a "
    "method, up to the end of the shortest; shading: range over its seeds."
)

Line = Callable[[pd.DataFrame, Place], list[Series]]
"""The line of a method from the rows of its complete runs, with columns ``x`` and ``score``; empty without any."""


def score_over_rounds(records: Records) -> Chart | None:
    """Mean and range over the seeds; failed runs dotted, up to where they ended."""
    return _curves(records, "round", 1.0, "Communication round", _per_round)


def score_over_bytes(records: Records) -> Chart | None:
    """The same over the bytes communicated so far; a line per session.

    Algorithms reach a session change at different bytes: joined lines would hide each other.
    """
    size, unit = byte_unit(records.history["bytes"].max())
    line = partial(_per_round, apart=not records.score.served)  # served: once a session, there is nothing else to join
    return _curves(records, "bytes", size, f"Communicated, both directions ({unit})", line)


def score_over_seconds(records: Records) -> Chart | None:
    """The score of the latest model at equal simulated seconds; None unless a run has a clock of events."""
    if not records.asynchronous:
        return None
    timed = replace(records, history=records.history.dropna(subset=["elapsed"]))
    size, unit = second_unit(timed.history["elapsed"].max())
    return _curves(timed, "elapsed", size, f"Simulated time ({unit})", _held)


def _curves(records: Records, x: str, size: float, title: str, line: Line) -> Chart | None:
    """A figure over the column ``x`` in units of ``size``."""
    column, score = records.column, records.score
    history = records.history.dropna(subset=[column])
    if history.empty:
        return None
    history = history.assign(x=history[x] / size, score=history[column])
    groups, rounds = by_method(history), by_method(records.history)
    places = places_of([method for method in records.methods if method in groups])
    series: dict[str, list[Series]] = {place.panel: [] for place in places.values()}
    failed = {panel: list[Series]() for panel in series}
    for method, place in places.items():
        group, complete = groups[method], groups[method]["state"] == "complete"
        series[place.panel] += line(group[complete], place) if complete.any() else []
        failed[place.panel] += _failed(place, group[~complete], alone=not complete.any())
        if x == "round":
            failed[place.panel] += alarm_marks(place.name, rounds[method], column, line_look(place.number).color)
    panels = list(series)
    if len({place.name for place in places.values()}) == 1 < len(panels):
        # A panel per algorithm: the line of the first one is behind the others, to compare them with.
        look: dict[str, Any] = {"name": panels[0], "color": GRAY, "low": None, "high": None, "marker": "", "width": 1.0}
        behind = [replace(own, **look) for own in series[panels[0]]]
        series |= {panel: [*behind, *series[panel]] for panel in panels[1:]}
    shown = {panel: [method for method, place in places.items() if place.panel == panel] for panel in panels}
    columns = 1 if len(panels) <= 4 else 3 if len(panels) <= 12 else 5  # few are stacked, so that rounds stay legible
    rows = -(-len(panels) // columns)
    return Chart(
        Axis(title, low=0.0, high=1.005 * records.history[x].max() / size),
        score_axis(f"Test {score.words}", score, history[column].min(), history[column].max()),
        tuple(
            Panel(
                panel if len(panels) > 1 else "",
                (*series[panel], *failed[panel]),
                sessions=session_spans(records, shown[panel]) if x == "round" else (),
                drifts=drift_marks(records.history) if x == "round" else (),
            )
            for panel in panels
        ),
        columns,
        3.6 if len(panels) == 1 else 0.6 + rows * (2.1 if columns == 1 else 1.6),
    )


def _per_round(rows: pd.DataFrame, place: Place, apart: bool = False) -> list[Series]:
    """The mean of the runs by round; ``apart``: sessions are not joined."""
    means = rows.groupby(["session", "round"], as_index=False).agg(
        x=("x", "mean"), mean=("score", "mean"), low=("score", "min"), high=("score", "max")
    )
    pieces = [piece for _, piece in means.groupby("session")] if apart else [means]
    look, marker = line_look(place.number), "o" if len(means) <= MOST_MARKERS else ""
    x, mean, low, high = (joined([floats(piece[name]) for piece in pieces]) for name in ("x", "mean", "low", "high"))
    return [Series(place.name, x, mean, look.color, low, high, dash=look.dash, marker=marker)]


def _held(rows: pd.DataFrame, place: Place) -> list[Series]:
    """Models hold until the next one: where all runs of the method have one, up to the first run's end."""
    runs = [run[["x", "score"]].to_numpy(dtype=np.float64) for _, run in rows.groupby("key", sort=False)]
    first, last = max(run[0, 0] for run in runs), min(run[-1, 0] for run in runs)
    at = np.unique(np.concatenate([run[:, 0] for run in runs]))
    at = at[(at >= first) & (at <= last)]
    values = np.stack([run[np.searchsorted(run[:, 0], at, side="right") - 1, 1] for run in runs])
    look, (x, mean, low, high) = line_look(place.number), stepped(at, values.mean(0), values.min(0), values.max(0))
    return [Series(place.name, x, mean, look.color, low, high, dash=look.dash)]


def _failed(place: Place, rows: pd.DataFrame, alone: bool) -> list[Series]:
    """Each run that did not complete: dotted, with a cross at its end; in the legend if the method has no other line."""
    found: list[Series] = []
    for (seed, state), run in rows.groupby(["seed", "state"], sort=False):
        x, score = floats(run["x"]), floats(run["score"])
        line = Series(place.name, x, score, line_look(place.number).color, dash=2, width=1.0, listed=alone)
        line = replace(line, note=f"seed {seed}, {state}")
        found += [line, replace(line, x=x[-1:], y=score[-1:], marker="x", size=6, width=0)]
    return found


figures.add(
    20,
    lambda source: drawings(
        f"{source.records.score.name}_over_rounds",
        f"Test {source.records.score.words} over communication rounds",
        _RANGE.format(source.records.models()) + marks_caption(source.records.history),
        score_over_rounds(source.records),
    ),
)
figures.add(
    170,
    lambda source: drawings(
        f"{source.records.score.name}_over_bytes",
        f"Test {source.records.score.words} over communicated bytes",
        _RANGE.format(source.records.models()),
        score_over_bytes(source.records),
    ),
)
figures.add(
    180,
    lambda source: drawings(
        f"{source.records.score.name}_over_seconds",
        f"Test {source.records.score.words} over simulated time",
        _SECONDS.format(source.records.models()),
        score_over_seconds(source.records),
    ),
)
