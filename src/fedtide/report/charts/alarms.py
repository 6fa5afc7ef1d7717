"""Alarms of detectors on the axis of rounds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedtide.records.measures.detections import COLUMN
from fedtide.report.charts.chart import Series, floats
from fedtide.report.charts.session_marks import drift_marks


def alarm_marks(name: str, rounds: pd.DataFrame, column: str, color: str) -> list[Series]:
    """A triangle at each alarm of the complete runs of a method; between two evaluated rounds, on the line that joins them."""
    x, y = list[float](), list[float]()
    for _, run in rounds[rounds["state"] == "complete"].groupby("key", sort=False):
        at, known = run.loc[run[COLUMN] > 0, "round"], run.dropna(subset=[column])
        if len(known):
            x += at.tolist()
            y += np.interp(at, known["round"], known[column]).tolist()
    return (
        [Series(name, floats(x), floats(y), color, marker="^", size=6, width=0, listed=False, note="alarm")]
        if x
        else []
    )


def marks_caption(history: pd.DataFrame) -> str:
    """What is said of the marks of drifts and alarms, where there are any."""
    drifts = " Dashed, vertical: a drift begins." if drift_marks(history) else ""
    return drifts + (" Triangle: an alarm of the method's detector." if (history[COLUMN] > 0).any() else "")
