"""Sessions on the axis of rounds: where each begins, its number, and whose turn it is; and where concepts change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_uppercase

import pandas as pd
from matplotlib.axes import Axes

from fedtide.records.frames import METHOD, Method, Records
from fedtide.records.measures import drifts
from fedtide.report.charts.style import DASHES, GRAY, INK

_MOST_SESSIONS = 40
_MOST_LABELS = 20  # of sessions or ticks over the width of the page
_MOST_TICKS = 12


def session_spans(history: pd.DataFrame, methods: list[Method]) -> list[tuple[int, int, int]]:
    """(session, first round, last round); empty for one session, too many to mark, or runs that disagree."""
    mine = history[history.set_index(METHOD).index.isin(methods)]
    spans = mine.groupby("session")["round"].agg(["min", "max"])
    begins = mine.groupby(["session", "key"])["round"].min().groupby("session").nunique()
    if not 1 < len(spans) <= _MOST_SESSIONS or (begins > 1).any():
        return []
    return [(int(session), int(first), int(last)) for session, first, last in spans.reset_index().to_numpy()]


def drift_marks(history: pd.DataFrame) -> tuple[float, ...]:
    """Where drifts begin, between two rounds; empty if there are too many to mark, or runs disagree."""
    found = {tuple(drifts.starts(run[drifts.COLUMN])) for _, run in history.groupby("key", sort=False)}
    starts = found.pop() if len(found) == 1 else ()
    return tuple(start + 0.5 for start in starts) if len(starts) <= _MOST_SESSIONS else ()


def groups_in_turn(records: Records) -> int:
    """Number of groups of devices that alternate between sessions; 0 if they do not."""
    turns = {
        {"alternate": 2, "cycle": settings.get("scenario.groups") or 0}.get(str(settings.get("scenario.pattern")), 0)
        for settings in records.settings.values()
    }
    return turns.pop() if len(turns) == 1 else 0


def session_labels(spans: Sequence[tuple[int, int, int]], columns: int, groups: int) -> list[tuple[float, str]]:
    """Middle and name of the sessions: number, and the letter of the group of devices.

    Where panels are too narrow for all, as with several ``columns``, every second or third is left.
    """
    step = math.ceil(len(spans) * columns / _MOST_LABELS)
    turns = [f" · {letter}" for letter in ascii_uppercase[:groups]] if 1 < groups <= 26 else [""]
    return [
        ((first + last) / 2, f"S{session}{turns[(session - 1) % len(turns)]}")
        for session, first, last in spans
        if (session - 1) % step == 0
    ]


def session_ticks(spans: Sequence[tuple[int, int, int]], columns: int) -> list[int]:
    """Ends of sessions as ticks; empty if there are too many."""
    step = math.ceil(len(spans) * columns / _MOST_LABELS)
    return [0, *(last for _, _, last in spans)][::step] if 0 < len(spans) <= _MOST_TICKS else []


def mark_sessions(axes: Axes, spans: Sequence[tuple[int, int, int]], named: bool, groups: int) -> None:
    """A thin line where a session begins; its name above the panel, if there is room. Every other session is shaded."""
    grid = axes.get_subplotspec()
    columns = grid.get_gridspec().ncols if grid else 1
    if ticks := session_ticks(spans, columns):
        axes.set_xticks(ticks)
    for session, first, last in spans:
        if first > 1:
            axes.axvline(first - 0.5, color=GRAY, linewidth=0.6, zorder=0.5)
        if session % 2 == 0:
            axes.axvspan(first - 0.5, last + 0.5, color="#f4f4f4", linewidth=0, zorder=0)
    for middle, name in session_labels(spans, columns, groups) if named else []:
        axes.annotate(
            name,
            (middle, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color="#555555",
        )


def mark_drifts(axes: Axes, places: Sequence[float]) -> None:
    """A thin dashed line where concepts of clients change."""
    for place in places:
        axes.axvline(place, color=INK, linestyle=DASHES[1], linewidth=0.8, zorder=0.6)
