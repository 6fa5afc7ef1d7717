"""What is marked on the axis of rounds: sessions, drifts of concepts, and alarms of detectors."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedtide.records.frames import METHOD, Method, Records
from fedtide.records.measures import drifts
from fedtide.records.measures.detections import COLUMN
from fedtide.report.charts.chart import Series, floats

_MOST_SESSIONS = 40
_MOST_LETTERS = 110  # of the names of sessions over the width of the page


def session_spans(records: Records, methods: list[Method]) -> tuple[tuple[str, int, int], ...]:
    """(name of the session, first round, last round); empty for one session, too many to mark, or runs that disagree."""
    history = records.history
    mine = history[history.set_index(METHOD).index.isin(methods)]
    spans = mine.groupby("session")["round"].agg(["min", "max"])
    begins = mine.groupby(["session", "key"])["round"].min().groupby("session").nunique()
    if not 1 < len(spans) <= _MOST_SESSIONS or (begins > 1).any():
        return ()
    return tuple(
        (records.session_name(int(session)), int(first), int(last))
        for session, first, last in spans.reset_index().to_numpy()
    )


def session_labels(spans: Sequence[tuple[str, int, int]], columns: int) -> list[tuple[float, str]]:
    """Middle and name of the sessions; every second or third where panels in several columns are too narrow for all."""
    letters = max((len(name) + 2 for name, _, _ in spans), default=0)
    step = math.ceil(len(spans) * columns * letters / _MOST_LETTERS) or 1
    return [((first + last) / 2, name) for name, first, last in spans[::step]]


def drift_marks(history: pd.DataFrame) -> tuple[float, ...]:
    """Where drifts begin, between two rounds; empty if there are too many to mark, or runs disagree."""
    found = {tuple(drifts.starts(run[drifts.COLUMN])) for _, run in history.groupby("key", sort=False)}
    starts = found.pop() if len(found) == 1 else ()
    return tuple(start + 0.5 for start in starts) if len(starts) <= _MOST_SESSIONS else ()


def alarm_marks(name: str, rounds: pd.DataFrame, column: str, color: str) -> list[Series]:
    """A triangle at each alarm of the complete runs of a method; between two evaluated rounds, on the line that joins them."""
    x: list[float] = []
    y: list[float] = []
    for _, run in rounds[rounds["state"] == "complete"].groupby("key", sort=False):
        at, known = run.loc[run[COLUMN] > 0, "round"], run.dropna(subset=[column])
        if len(known):
            x += at.tolist()
            y += np.interp(at, known["round"], known[column]).tolist()
    look: dict[str, Any] = {"marker": "^", "size": 6, "width": 0, "listed": False, "note": "alarm"}
    return [Series(name, floats(x), floats(y), color, **look)] if x else []


def marks_caption(history: pd.DataFrame) -> str:
    """What is said of the marks of drifts and alarms, where there are any."""
    drifted = " Dashed, vertical: a drift begins." if drift_marks(history) else ""
    return drifted + (" Triangle: an alarm of the method's detector." if (history[COLUMN] > 0).any() else "")
