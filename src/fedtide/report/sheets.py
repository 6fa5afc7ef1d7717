"""Session changes as tables of text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from fedtide.report import formats, metrics
from fedtide.report.records import METHOD, Method
from fedtide.report.transitions import Rules

_MOST_SESSIONS = 6


@dataclass(frozen=True)
class Sheet:
    """A table: headings of its columns, and the cells of each method.

    ``rows`` may be about other things with two names; ``names`` says of what kind they are.
    """

    title: str
    caption: str
    headings: list[str]
    rows: list[tuple[Method, list[str]]]
    names: tuple[str, str] = ("Algorithm", "Initialiser")


def sheets(frame: pd.DataFrame, rules: Rules) -> list[Sheet]:
    """Tables of what :func:`transitions` found, those with something to show."""
    groups = [((str(label), str(start)), group) for (label, start), group in frame.groupby(METHOD, sort=False)]
    made = [_accuracies(groups, sorted(set(frame["session"])), rules)] if groups else []
    return made + ([_recovery(groups, rules)] if frame["gain"].notna().any() else [])


def _accuracies(groups: list[tuple[Method, pd.DataFrame]], sessions: list[int], rules: Rules) -> Sheet:
    shown = sessions if 1 < len(sessions) <= _MOST_SESSIONS else []
    starts = any(group["start"].notna().any() for _, group in groups)
    rows = []
    for method, group in groups:
        parts = [group[group["session"] == session] for session in shown]
        cells = [_percent(part, "accuracy") for part in parts] + [_percent(group, "accuracy")]
        rows.append((method, cells + ([_percent(group, "start"), _percent(group, "dip")] if starts else [])))
    if len(sessions) == 1:
        counted = f"Session {sessions[0]} counts"
    elif sessions == list(range(sessions[0], sessions[-1] + 1)):
        counted = f"Sessions {sessions[0]} to {sessions[-1]} count"
    else:
        counted = f"Sessions {', '.join(map(str, sessions))} count"
    return Sheet(
        f"Accuracy in the first {rules.window} rounds after a session change, %",
        f"{counted}. Mean \N{PLUS-MINUS SIGN} sample standard deviation over the seeds."
        + (
            " Start: before the first round; dip: how far that is below the end of the session before."
            if starts
            else ""
        ),
        [*(f"Session {session}" for session in shown), "All", *(["Start", "Dip, points"] if starts else [])],
        rows,
    )


def _recovery(groups: list[tuple[Method, pd.DataFrame]], rules: Rules) -> Sheet:
    share = f"{100 * rules.rho:g} %"
    costs = [name for name in ("latency", "energy") if any(group[name].notna().any() for _, group in groups)]
    writers: dict[str, Callable[[float], str]] = {
        "rounds": formats.rounds, "speed_up": formats.times, "latency": formats.seconds, "energy": formats.joules,
    }  # fmt: skip
    rows = []
    for method, group in groups:
        cells = [_twice(group, name, writers[name]) for name in ("rounds", "speed_up", *costs)]
        rows.append((method, [*cells[:2], _percent(group, "gain"), *cells[2:]]))
    return Sheet(
        f"Recovery after a session change, compared with {rules.reference}",
        f"Rounds until {share} of the best accuracy of {rules.reference} in the same session and seed, and how many times "
        f"sooner {rules.reference} is there: medians over sessions and seeds; in brackets, its gradient rounds count too. "
        f"Gain of {rules.reference}: difference summed over a session's rounds. Latency and energy: rounds times the "
        "mean cost of a round.",
        [f"Rounds to {share}", "Speed-up", "Gain, points", *(f"{name.capitalize()} to {share}" for name in costs)],
        rows,
    )


def _percent(group: pd.DataFrame, column: str) -> str:
    """Mean over sessions of each seed, then mean and spread over the seeds."""
    return formats.percent(*metrics.mean_std(group.groupby("seed")[column].mean()))


def _twice(group: pd.DataFrame, column: str, write: Callable[[float], str]) -> str:
    """Median without gradient rounds, and with them in brackets where that differs."""
    plain, counted = (write(group[name].median()) for name in (column, f"{column}_gradient"))
    return plain if plain == counted else f"{plain} ({counted})"
