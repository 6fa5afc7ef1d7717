"""Alarms of detectors in a comparison, against the true drifts."""

import pandas as pd

from fedtide.records.frames import METHOD, Records, by_method
from fedtide.records.measures import drifts, metrics
from fedtide.records.measures.detections import COLUMN, HORIZON, detections
from fedtide.report import formats
from fedtide.report.parts import frames, sheets
from fedtide.report.tables.method_table import Sheet


def per_run(records: Records) -> pd.DataFrame:
    """A row per complete run with a detector: the run's columns, ``drifts``, ``detected``, ``delay``, ``false_alarms``."""
    history = records.history[records.history["state"] == "complete"]
    rows = []
    for _, run in history[history[COLUMN].notna()].groupby("key", sort=False):
        found = detections(run[COLUMN], run[drifts.COLUMN])
        measured = {"drifts": len(found.delays), "detected": found.detected, "delay": found.delay}
        rows.append(run[["key", *METHOD, "seed"]].iloc[0].to_dict() | measured | {"false_alarms": found.false})
    return pd.DataFrame(rows, columns=["key", *METHOD, "seed", "drifts", "detected", "delay", "false_alarms"])


def sheets_of(runs: pd.DataFrame) -> list[Sheet]:
    """The table of :func:`per_run`; none without runs."""
    rows = [(method, _cells(group)) for method, group in by_method(runs).items()] if len(runs) else []
    return [Sheet("Alarms", _CAPTION, ["Detected", "Delay, rounds", "False alarms"], rows)] if rows else []


_CAPTION = (
    f"Detected: drifts with an alarm from their first round to {HORIZON} rounds from their last change on, and before the next "
    "one; delay: rounds from the first round to that alarm. False: alarms while no concept of a client present has changed for "
    f"{HORIZON} rounds, per run. Mean \N{PLUS-MINUS SIGN} sample standard deviation over the seeds."
)


def _cells(runs: pd.DataFrame) -> list[str]:
    delay, false = (metrics.mean_std(runs[name].dropna()) for name in ("delay", "false_alarms"))
    return [
        f"{int(runs['detected'].sum())} of {int(runs['drifts'].sum())}",
        formats.rounds(round(delay[0], 1), delay[1]),
        formats.rounds(round(false[0], 1), false[1]),
    ]


sheets.add(60, lambda source: sheets_of(per_run(source.records)))
frames.add(0, lambda source: [("alarms", found)] if len(found := per_run(source.records)) else [])
