"""Figures of session starts: the weights of stored models, and the losses of the candidate initial models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedtide.report.records import METHOD, Method, Records
from fedtide.report.style import PALETTE, WIDTH, paper, png

_LOOKS = {
    "start": ("initial model of the session", PALETTE[0], "o"),
    "previous": ("final model of the previous session", PALETTE[1], "s"),
    "average": ("mean of the final models since the pilot", PALETTE[2], "^"),
    "first": ("initial model of the run", "#8a8a8a", "x"),
}
"""Name, colour and marker of each recorded loss, by its key."""


def weights(records: Records, reference: str) -> bytes | None:
    """Weights of the stored models in a session's initial model, mean over the seeds: a panel per algorithm."""
    panels = _panels(records, "mu", reference)
    if not panels:
        return None
    sessions = sorted({row["session"] for _, rows in panels for row in rows})
    stored = sorted({earlier for _, rows in panels for row in rows for earlier in row["mu"]})
    columns = min(len(panels), 4)
    lines = -(-len(panels) // columns)
    with paper():
        figure = Figure(figsize=(WIDTH, 0.5 + lines * (0.4 + 0.27 * len(sessions))), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for spare in list(grid.flat)[len(panels) :]:
            spare.set_visible(False)
        for axes, (name, rows) in zip(grid.flat, panels, strict=False):
            values = np.array([[_weight(rows, session, earlier) for earlier in stored] for session in sessions])
            image = axes.pcolormesh(
                np.ma.masked_invalid(values), cmap="Blues", vmin=0, vmax=1, edgecolors="white", lw=1
            )
            if len(stored) * columns <= 40:
                _write(axes, values)
            axes.set_title(name)
            axes.grid(visible=False)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_xticks(np.arange(len(stored)) + 0.5, [str(earlier) for earlier in stored])
            axes.set_yticks(np.arange(len(sessions)) + 0.5, [str(session) for session in sessions])
        grid.flat[0].invert_yaxis()
        figure.supxlabel("Model stored at the end of session", fontsize=9)
        figure.supylabel("Session that begins", fontsize=9)
        bar = figure.colorbar(image, ax=grid, fraction=0.03, pad=0.02, aspect=12)
        bar.set_label("Weight")
        bar.outline.set_visible(False)
        return png(figure)


def losses(records: Records, reference: str) -> bytes | None:
    """Training loss of the candidate initial models of a session, mean and range over the seeds: a panel per algorithm."""
    panels = _panels(records, "losses", reference)
    if not panels:
        return None
    columns = len(panels) if len(panels) <= 3 else 2 if len(panels) == 4 else 3
    lines = -(-len(panels) // columns)
    with paper():
        figure = Figure(figsize=(WIDTH, 0.7 + 2.1 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for spare in list(grid.flat)[len(panels) :]:
            spare.set_visible(False)
        for axes, (name, rows) in zip(grid.flat, panels, strict=False):
            frame = pd.DataFrame([row["losses"] | {"session": row["session"]} for row in rows]).groupby("session")
            for key, (words, colour, marker) in _LOOKS.items():
                if any(key in row["losses"] for row in rows):
                    values = frame[key].agg(["mean", "min", "max"])
                    axes.plot(values.index, values["mean"], marker=marker, color=colour, ms=4.5, lw=1, label=words)
                    axes.fill_between(values.index, values["min"], values["max"], color=colour, alpha=0.15, lw=0)
            axes.set_title(name)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(lambda loss, _: f"{loss:g}" if f"{loss:e}"[0] in "25" else "")
            axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
            axes.tick_params(labelbottom=True)
        figure.supxlabel("Session that begins", fontsize=9)
        figure.supylabel("Training loss", fontsize=9)
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
        return png(figure)


def _weight(rows: list[dict[str, Any]], session: int, stored: int) -> float:
    """Mean over the seeds; NaN where no run mixed models for this session, or none had stored that one."""
    found = [row["mu"][stored] for row in rows if row["session"] == session and stored in row["mu"]]
    return float(np.mean(found)) if found else math.nan


def _write(axes: Axes, values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    for (row, column), weight in np.ndenumerate(values):
        if not math.isnan(weight):
            colour = "white" if weight > 0.55 else "black"
            axes.text(column + 0.5, row + 0.5, f"{weight:.2f}", ha="center", va="center", fontsize=7, color=colour)


def _panels(records: Records, column: str, reference: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Name and rows of each algorithm in ``Records.boundaries``: complete runs with a value in ``column``.

    Rows of the reference initialiser if it recorded any, else of the first that did.
    """
    rows = [row for row in records.boundaries.to_dict("records") if row[column] and row["state"] == "complete"]
    starts = [row["initialiser"] for row in rows]
    if not rows:
        return []
    chosen = reference if reference in starts else starts[0]
    methods: dict[Method, list[dict[str, Any]]] = {}
    for row in rows:
        if row["initialiser"] == chosen:
            methods.setdefault((row[METHOD[0]], chosen), []).append({str(name): value for name, value in row.items()})
    return [(f"{label} · {start}", rows) for (label, start), rows in methods.items()]
