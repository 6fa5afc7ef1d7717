"""The score over rounds, bytes and simulated seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from fedtide.records.frames import METHOD, Method, Records, by_method
from fedtide.report.charts.alarms import alarm_marks, marks_caption
from fedtide.report.charts.chart import (
    MOST_MARKERS,
    TOGETHER,
    Axis,
    Chart,
    Panel,
    Series,
    floats,
    joined,
    score_axis,
)
from fedtide.report.charts.methods import Place, places_of
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.session_marks import drift_marks, groups_in_turn, session_spans
from fedtide.report.charts.style import DASHES, GRAY, Look, line_look
from fedtide.report.formats import byte_unit, second_unit
from fedtide.report.parts import figures

_RANGE = (
    "Lines: mean of the complete runs of a method; shading: range over its seeds. Dotted, ending in a cross: a run that "
    "diverged or did not finish."
)
_SECONDS = (
    "Of the latest model; in lockstep a round lasts as long as its slowest client. Lines: mean of the complete runs of a "
    "method, up to the end of the shortest; shading: range over its seeds."
)
_SHARED = "#6e6e6e"
"""Color of lines of several methods."""


def score_over_rounds(records: Records) -> Chart | None:
    """Mean and range over the seeds; failed runs dotted, up to where they ended."""
    return _curves(records, "round", lambda _: (1.0, "Communication round"), _over_rounds)


def score_over_bytes(records: Records) -> Chart | None:
    """The same over the bytes communicated so far; a line per session."""

    def axis(most: float) -> tuple[float, str]:
        size, unit = byte_unit(most)
        return size, f"Communicated, both directions ({unit})"

    return _curves(records, "bytes", axis, _over_bytes)


def score_over_seconds(records: Records) -> Chart | None:
    """The score of the latest model at equal simulated seconds; None unless a run has a clock of events."""

    def axis(most: float) -> tuple[float, str]:
        size, unit = second_unit(most)
        return size, f"Simulated time ({unit})"

    timed = replace(records, history=records.history.dropna(subset=["elapsed"]))
    return _curves(timed, "elapsed", axis, _over_seconds) if records.asynchronous else None


def _apart(places: dict[Method, Place]) -> bool:
    """Whether there are so many algorithms, with one initializer, that each has a panel of its own."""
    return len({place.name for place in places.values()}) == 1 < len({place.panel for place in places.values()})


def _background(line: Series, algorithm: str) -> Series:
    """The line of the first panel's algorithm behind those of the others, to compare them with."""
    return replace(line, name=algorithm, color=GRAY, low=None, high=None, marker="", width=1.0)


_Lines = Callable[[dict[Place, pd.DataFrame], float], list[Series]]
"""The lines of a panel: from its methods' places and rows with columns ``x`` and ``score``, and the size of a unit of x."""


def _curves(records: Records, x: str, axis: Callable[[float], tuple[float, str]], lines: _Lines) -> Chart | None:
    column, score = records.column, records.score
    history = records.history.dropna(subset=[column])
    if history.empty:
        return None
    drawn = set(history[METHOD].itertuples(index=False, name=None))
    places = places_of([method for method in records.methods if method in drawn])
    panels = list(dict.fromkeys(place.panel for place in places.values()))
    size, title = axis(records.history[x].max())
    series: dict[str, list[Series]] = {panel: [] for panel in panels}
    groups, rounds = by_method(history), by_method(records.history)
    for panel, found in series.items():
        own = {method: group for method, group in groups.items() if places[method].panel == panel}
        rows_of = {places[method]: group.assign(x=group[x], score=group[column]) for method, group in own.items()}
        found += lines(rows_of, size)
        for method, place in zip(own, rows_of, strict=True) if x == "round" else ():
            found += alarm_marks(place.name, rounds[method], column, line_look(place.number).color)
    _number_together(series)
    if _apart(places):
        first, *others = panels
        behind = [_background(line, first) for line in series[first] if line.y is not None and not line.note]
        series |= {panel: [*behind, *series[panel]] for panel in others}
    shown = {panel: [method for method, place in places.items() if place.panel == panel] for panel in panels}
    columns = 1 if len(panels) <= 4 else 3 if len(panels) <= 12 else 5  # few are stacked, so that rounds stay legible
    rows = -(-len(panels) // columns)
    return Chart(
        Axis(title, low=0.0, high=1.005 * records.history[x].max() / size),
        score_axis(f"Test {score.words}", score, history[column].min(), history[column].max()),
        tuple(
            Panel(
                panel if len(panels) > 1 else "",
                tuple(series[panel]),
                sessions=tuple(session_spans(records.history, shown[panel])) if x == "round" else (),
                drifts=drift_marks(records.history) if x == "round" else (),
            )
            for panel in panels
        ),
        columns,
        3.6 if len(panels) == 1 else 0.6 + rows * (2.1 if columns == 1 else 1.6),
        groups_in_turn(records),
    )


def _over_rounds(groups: dict[Place, pd.DataFrame], size: float) -> list[Series]:
    return _over_sessions(groups, size, joined=True)


def _over_bytes(groups: dict[Place, pd.DataFrame], size: float) -> list[Series]:
    """Algorithms reach a session change at different bytes: joined lines would hide each other."""
    return _over_sessions(groups, size, joined=False)


def _over_sessions(groups: dict[Place, pd.DataFrame], size: float, joined: bool) -> list[Series]:
    """What methods have in common over a session is drawn once, in gray, and named after all of them."""
    looks = {place.name: line_look(place.number) for place in groups}
    curves = {place.name: _per_round(group) for place, group in groups.items()}
    found = list[Series]()
    for names, pieces in distinct_lines(curves, joined):
        look = looks[names[0]] if len(names) == 1 else Look(_SHARED, 0)
        found += _range(TOGETHER.join(names), look, pieces, size)
    return [*found, *(line for place, group in groups.items() for line in _failed(place, group, size))]


def _number_together(series: dict[str, list[Series]]) -> None:
    """Give the lines of several methods different dashes, the same in all panels."""
    names = dict.fromkeys(line.name for lines in series.values() for line in lines if line.color == _SHARED)
    dashes = {name: number % len(DASHES) for number, name in enumerate(names)}
    for panel, lines in series.items():
        series[panel] = [replace(line, dash=dashes.get(line.name, line.dash)) for line in lines]


def _per_round(group: pd.DataFrame) -> pd.DataFrame:
    complete = group[group["state"] == "complete"]
    return complete.groupby(["session", "round"], as_index=False).agg(
        x=("x", "mean"), mean=("score", "mean"), low=("score", "min"), high=("score", "max")
    )


def _range(name: str, look: Look, pieces: list[pd.DataFrame], size: float) -> list[Series]:
    points = sum(len(piece) for piece in pieces)
    if not points:
        return []
    x, mean, low, high = (joined([floats(piece[name]) for piece in pieces]) for name in ("x", "mean", "low", "high"))
    marker = "o" if points <= MOST_MARKERS else ""
    return [Series(name, x / size, mean, look.color, low, high, dash=look.dash, marker=marker)]


def _over_seconds(groups: dict[Place, pd.DataFrame], size: float) -> list[Series]:
    return [line for place, group in groups.items() for line in _held(place, group, size)]


def _held(place: Place, group: pd.DataFrame, size: float) -> list[Series]:
    """The same for models that hold until the next one: where all runs of the method have one, up to the first run's end."""
    look, complete = line_look(place.number), group[group["state"] == "complete"]
    runs = [run[["x", "score"]].to_numpy(dtype=np.float64) for _, run in complete.groupby("key", sort=False)]
    failed = _failed(place, group, size)
    if not runs:
        return failed
    first, last = max(run[0, 0] for run in runs), min(run[-1, 0] for run in runs)
    at = np.unique(np.concatenate([run[:, 0] for run in runs]))
    at = at[(at >= first) & (at <= last)]
    values = np.stack([run[np.searchsorted(run[:, 0], at, side="right") - 1, 1] for run in runs])
    mean, low, high = values.mean(0), values.min(0), values.max(0)
    return [Series(place.name, at / size, mean, look.color, low, high, dash=look.dash, steps=True), *failed]


def _failed(place: Place, group: pd.DataFrame, size: float) -> list[Series]:
    """Each run that did not complete: dotted, with a cross at its end."""
    found, alone = [], not (group["state"] == "complete").any()
    for (seed, state), run in group[group["state"] != "complete"].groupby(["seed", "state"], sort=False):
        x, score = floats(run["x"]) / size, floats(run["score"])
        line = Series(place.name, x, score, line_look(place.number).color, dash=2, width=1.0, listed=alone)
        line = replace(line, note=f"seed {seed}, {state}")
        found += [line, replace(line, x=x[-1:], y=score[-1:], marker="x", size=6, width=0)]
    return found


_VALUES = ["round", "x", "mean", "low", "high"]


def distinct_lines(
    curves: Mapping[str, pd.DataFrame], joined: bool
) -> Iterator[tuple[tuple[str, ...], list[pd.DataFrame]]]:
    """The lines to draw, and the pieces of each: first of single methods, then of those that coincide.

    Methods coincide in a session if all their values in it are equal to the bit: those that differ in how sessions start do
    until a session starts with another model.

    Args:
        curves: a row per round, by session and round, of each method, with the columns ``session``, ``round``, ``x``, ``mean``,
            ``low`` and ``high``.
        joined: whether a line goes on from session to session; then it also begins and ends where it leaves the others.
    """
    sessions = {
        name: {int(str(session)): rows for session, rows in curve.groupby("session")} for name, curve in curves.items()
    }
    together = {session: _groups(sessions, session) for found in sessions.values() for session in found}
    owners = dict.fromkeys(group for session in sorted(together) for group in together[session])
    order = list(curves)
    for owner in sorted(owners, key=lambda names: (len(names) > 1, [order.index(name) for name in names])):
        own = [session for session in sorted(together) if owner in together[session]]
        pieces: list[pd.DataFrame] = []
        for session in own:
            piece = sessions[owner[0]][session]
            if joined and pieces and session - 1 in own:
                pieces[-1] = pd.concat([pieces[-1], piece])
            else:
                before = sessions[owner[0]].get(session - 1) if joined else None
                shared = before is not None and any(set(owner) < set(group) for group in together[session - 1])
                pieces.append(pd.concat([before.tail(1), piece]) if before is not None and shared else piece)
            after = sessions[owner[0]].get(session + 1) if joined else None
            if after is not None and any(set(owner) < set(group) for group in together[session + 1]):
                pieces[-1] = pd.concat([pieces[-1], after.head(1)])
        yield owner, pieces


def _groups(sessions: Mapping[str, Mapping[int, pd.DataFrame]], session: int) -> list[tuple[str, ...]]:
    """Names of methods whose values in a session are equal."""
    groups: dict[bytes, list[str]] = {}
    for name, curves in sessions.items():
        if session in curves:
            groups.setdefault(curves[session][_VALUES].to_numpy(dtype="float64").tobytes(), []).append(name)
    return [tuple(names) for names in groups.values()]


figures.add(
    20,
    lambda source: drawings(
        f"{source.records.score.name}_over_rounds",
        f"Test {source.records.score.words} over communication rounds",
        _RANGE + marks_caption(source.records.history),
        score_over_rounds(source.records),
    ),
)
figures.add(
    170,
    lambda source: drawings(
        f"{source.records.score.name}_over_bytes",
        f"Test {source.records.score.words} over communicated bytes",
        _RANGE,
        score_over_bytes(source.records),
    ),
)
figures.add(
    180,
    lambda source: drawings(
        f"{source.records.score.name}_over_seconds",
        f"Test {source.records.score.words} over simulated time",
        _SECONDS,
        score_over_seconds(source.records),
    ),
)
