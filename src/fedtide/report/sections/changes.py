"""Session changes: the score after them, and recovery."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from fedtide.records.frames import Method, Records, by_method
from fedtide.records.measures import metrics
from fedtide.report import formats
from fedtide.report.charts.chart import Axis, Chart, Panel, Series, floats
from fedtide.report.charts.methods import method_names, places_of
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.style import INK, line_look
from fedtide.report.parts import figures, frames, sheets
from fedtide.report.tables.method_table import Sheet
from fedtide.report.tables.table import Table
from fedtide.report.tables.transitions import per_session
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.scores import ACCURACY

_MOST_SESSIONS = 6


def score_after_changes(table: Table) -> Chart | None:
    """The score after session changes: one dot per run, a bar at the mean of each method."""
    values = table.by_seed("transition").dropna(axis=1, how="all")  # nobody may train the model scored
    if values.empty or not any(column.key == "transition" for column in table.columns):
        return None
    methods = [method for method, _ in table.rows()]
    names, places = method_names(methods), places_of(methods)
    series = []
    for place, method in enumerate(methods):
        if method in values:
            of_runs, color = floats(values[method].dropna()), line_look(places[method].number).color
            at = np.full(len(of_runs), float(place))
            dots = Series(names[method], of_runs, at, color, marker="o", size=6, width=0, opacity=0.6, listed=False)
            bar = Series(names[method], of_runs.mean(keepdims=True), at[:1], INK, marker="|", size=11, width=0)
            series += [dots, replace(bar, listed=False, note="mean")]
    title = f"{table.score.title} of the first rounds after a session change"
    rows = Axis("", names=tuple(names.values()))
    return Chart(Axis(title, table.score.share), rows, (Panel(series=tuple(series)),), 1, 0.8 + 0.26 * len(names))


def sheets_of(frame: pd.DataFrame, settings: ReportSettings, records: Records) -> list[Sheet]:
    """Tables of the result of :func:`transitions`, without empty ones."""
    groups = list(by_method(frame).items())
    tables = [_accuracies(groups, sorted(set(frame["session"])), settings, records)] if groups else []
    return tables + ([_recovery(groups, settings)] if frame["gain"].notna().any() else [])


def _accuracies(
    groups: list[tuple[Method, pd.DataFrame]], sessions: list[int], settings: ReportSettings, records: Records
) -> Sheet:
    shown = sessions if 1 < len(sessions) <= _MOST_SESSIONS else []
    starts = any(group["start"].notna().any() for _, group in groups)
    rows = []
    for method, group in groups:
        parts = [group[group["session"] == session] for session in shown]
        cells = [_percent(part, "accuracy") for part in parts] + [_percent(group, "accuracy")]
        rows.append((method, cells + ([_percent(group, "start"), _percent(group, "dip")] if starts else [])))
    names = [records.session_name(session, "") for session in sessions]
    word = "Period" if records.periods else "Session"
    if len(sessions) == 1:
        evaluated = f"{word} {names[0]}"
    elif sessions == list(range(sessions[0], sessions[-1] + 1)):
        evaluated = f"{word}s {names[0]} to {names[-1]}"
    else:
        evaluated = f"{word}s {', '.join(names)}"
    return Sheet(
        f"Accuracy in the first {settings.transition_window} rounds after a session change, %",
        f"Of {records.models(ACCURACY)}. {evaluated}. Mean \N{PLUS-MINUS SIGN} sample standard deviation over the seeds."
        + (" Start: before the first round; dip: drop from the end of the previous session." if starts else ""),
        [
            *(records.session_name(session, "Session ") for session in shown),
            "All",
            *(["Start", "Dip, points"] if starts else []),
        ],
        rows,
    )


def _recovery(groups: list[tuple[Method, pd.DataFrame]], settings: ReportSettings) -> Sheet:
    share, reference = f"{100 * settings.rho:g} %", settings.reference
    costs = [name for name in ("latency", "energy") if any(group[name].notna().any() for _, group in groups)]
    writers: dict[str, Callable[[float], str]] = {
        "rounds": formats.rounds, "speed_up": formats.times, "latency": formats.seconds, "energy": formats.joules,
    }  # fmt: skip
    rows = []
    for method, group in groups:
        cells = [_twice(group, name, writers[name]) for name in ("rounds", "speed_up", *costs)]
        rows.append((method, [*cells[:2], _percent(group, "gain"), *cells[2:]]))
    return Sheet(
        f"Recovery after a session change, compared with {reference}",
        f"Rounds to {share} of the best accuracy of {reference} in the same session with the same seed, and speed-up of "
        f"{reference}: medians over sessions and seeds; in brackets, including gradient rounds. Gain of "
        f"{reference}: difference summed over a session's rounds. Latency and energy: rounds times the mean cost of a "
        "round.",
        [f"Rounds to {share}", "Speed-up", "Gain, points", *(f"{name.capitalize()} to {share}" for name in costs)],
        rows,
    )


def _percent(group: pd.DataFrame, column: str) -> str:
    """Mean over the sessions of each seed, then mean and spread over the seeds."""
    values = group.groupby("seed")[column].mean()
    return formats.over(formats.percent(*metrics.mean_std(values)), values.count(), len(values))


def _twice(group: pd.DataFrame, column: str, write: Callable[[float], str]) -> str:
    """Median without gradient rounds, and in brackets with them if that differs."""
    plain, extended = (write(group[name].median()) for name in (column, f"{column}_gradient"))
    return plain if plain == extended else f"{plain} ({extended})"


figures.add(
    40,
    lambda source: drawings(
        f"transition_{source.records.score.name}",
        f"{source.records.score.title} after session changes",
        f"Of {source.records.models()}. Mean over the first {source.table.settings.transition_window} rounds after the "
        "evaluated changes. Dots: runs; bars: mean of a method.",
        score_after_changes(source.table),
    ),
)
sheets.add(40, lambda source: sheets_of(source.changes, source.contents.settings, source.records))
frames.add(0, lambda source: [("transitions", per_session(source.changes))] if len(source.changes) else [])
