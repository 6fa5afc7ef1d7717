"""Figures of session starts: the weights of stored models, and the losses of the candidate initial models."""

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from fedtide.records.frames import Records, by_method
from fedtide.report.charts.chart import Axis, Cells, Chart, Panel, Series, ranged
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.style import GRAY, PALETTE
from fedtide.report.parts import figures

Row = dict[Hashable, Any]
"""Of ``Records.boundaries``."""

_MOST_WRITTEN = 40  # columns of cells, over the width of the page, in which a number has room

_LOOKS = {
    "start": ("initial model of the session", PALETTE[0], "o"),
    "previous": ("final model of the previous session", PALETTE[1], "s"),
    "average": ("mean of the final models since the pilot", PALETTE[2], "^"),
    "first": ("initial model of the run", GRAY, "x"),
}
"""Name, color and marker of each recorded loss, by its key."""


def weights(records: Records, reference: str) -> Chart | None:
    """Weights of the stored models in a session's initial model, mean over the seeds: a panel per algorithm."""
    panels = _panels(records, "mu", reference)
    if not panels:
        return None
    sessions = sorted({row["session"] for _, rows in panels for row in rows})
    stored = sorted({earlier for _, rows in panels for row in rows for earlier in row["mu"]})
    columns = min(len(panels), 4)
    written = len(stored) * columns <= _MOST_WRITTEN

    def cells(rows: list[Row]) -> Cells:
        values = np.array([[_weight(rows, session, earlier) for earlier in stored] for session in sessions])
        return Cells(values, "Blues", "Weight", written=written)

    return Chart(
        Axis("Model stored at the end of session", names=tuple(records.session_name(number, "") for number in stored)),
        _begins(records, sessions),
        tuple(Panel(name, cells=cells(rows)) for name, rows in panels),
        columns,
        0.5 + -(-len(panels) // columns) * (0.4 + 0.27 * len(sessions)),
    )


def losses(records: Records, reference: str) -> Chart | None:
    """Training loss of the candidate initial models of a session, mean and range over the seeds: a panel per algorithm."""
    panels = _panels(records, "losses", reference)
    if not panels:
        return None
    order = sorted({row["session"] for _, rows in panels for row in rows})
    columns = len(panels) if len(panels) <= 3 else 2 if len(panels) == 4 else 3

    def series(rows: list[Row]) -> tuple[Series, ...]:
        frame = pd.DataFrame([row["losses"] | {"session": order.index(row["session"])} for row in rows]).groupby(
            "session"
        )
        found = []
        for key, (words, color, marker) in _LOOKS.items():
            if any(key in row["losses"] for row in rows):
                of = frame[key].agg(["mean", "min", "max"])
                found.append(ranged(words, of, color, marker=marker, size=4.5, width=1.0, shade=0.15))
        return tuple(found)

    return Chart(
        _begins(records, order),
        Axis("Training loss", log=True),
        tuple(Panel(name, series(rows)) for name, rows in panels),
        columns,
        0.7 + 2.1 * -(-len(panels) // columns),
    )


def _begins(records: Records, sessions: list[int]) -> Axis:
    """An axis of sessions."""
    names = tuple(records.session_name(number, "") for number in sessions)
    return Axis(f"{'Period' if records.periods else 'Session'} that begins", names=names)


def _weight(rows: list[Row], session: int, stored: int) -> float:
    """Mean over the seeds; NaN where no run mixed models for this session, or none had stored that one."""
    found = [row["mu"][stored] for row in rows if row["session"] == session and stored in row["mu"]]
    return float(np.mean(found)) if found else math.nan


def _panels(records: Records, column: str, reference: str) -> list[tuple[str, list[Row]]]:
    """Name and rows of each algorithm in ``Records.boundaries``: complete runs with a value in ``column``.

    Rows of the reference initializer if it recorded any, else of the first that did.
    """
    rows = records.boundaries
    rows = rows[rows[column].astype(bool) & (rows["state"] == "complete") & ~rows["key"].isin(records.without_global)]
    if rows.empty:
        return []
    chosen = reference if (rows["initializer"] == reference).any() else rows["initializer"].iloc[0]
    groups = by_method(rows[rows["initializer"] == chosen])
    return [(f"{label} · {start}", own.to_dict("records")) for (label, start), own in groups.items()]


figures.add(
    130,
    lambda source: drawings(
        "weights",
        "Weights of the stored models at the start of a session",
        "Mean over the complete runs. White: not stored yet, or not mixed.",
        weights(source.records, source.table.settings.reference),
    ),
)
figures.add(
    140,
    lambda source: drawings(
        "session_start_losses",
        "Training loss of the candidate initial models of a session",
        "On the clients of the new session, before its first round. Lines: mean over the complete runs; shading: range over "
        "the seeds.",
        losses(source.records, source.table.settings.reference),
    ),
)
