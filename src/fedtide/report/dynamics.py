"""Figures of training dynamics: concentration of the neurons' activity, and momentum of the server."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.engine.neurons import SOFTMAX
from fedtide.report.records import METHOD, Records
from fedtide.report.style import WIDTH, line_style, paper, png


def neurons(records: Records) -> bytes | None:
    """Entropy concentration of the hidden layers, unweighted mean over them: mean and range over the complete runs."""
    frame = records.neurons[records.neurons["layer"] != SOFTMAX]
    per_run = frame.groupby([*METHOD, "state", "key", "round"], sort=False, as_index=False)[["entropy"]].mean()
    return _figure([(per_run, "entropy", "Concentration of activity")])


def momentum(records: Records) -> bytes | None:
    """Norm of the server's momentum and alpha, for algorithms that have them."""
    return _figure(
        [
            (records.history, "momentum_norm", "Norm of the momentum"),
            (records.history, "alpha", "Weight of the gradient"),
        ]
    )


def _figure(panels: list[tuple[pd.DataFrame, str, str]]) -> bytes | None:
    """Panels side by side, each a column over the rounds; None without data."""
    drawn = [(frame[frame["state"] == "complete"].dropna(subset=[name]), name, title) for frame, name, title in panels]
    if any(frame.empty for frame, _, _ in drawn):
        return None
    with paper():
        figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
        grid = figure.subplots(1, len(drawn), squeeze=False)[0]
        for axes, (frame, name, title) in zip(grid, drawn, strict=True):
            _draw(axes, frame, name)
            axes.set_ylabel(title)
        handles, names = grid[0].get_legend_handles_labels()
        if len(names) > 1:
            figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), 7))
        figure.supxlabel("Communication round", fontsize=9)
        return png(figure)


def _draw(axes: Axes, frame: pd.DataFrame, name: str) -> None:
    one = frame["initialiser"].nunique() == 1
    for number, (method, rows) in enumerate(frame.groupby(METHOD, sort=False)):
        values = rows.groupby("round")[name].agg(["mean", "min", "max"])
        look = line_style(number)
        label, start = method
        axes.plot(values.index, values["mean"], label=label if one else f"{label} · {start}", **look)
        axes.fill_between(values.index, values["min"], values["max"], color=look["color"], alpha=0.18, lw=0)
    if frame[name].max() > 20 * frame[name].median() > 0:
        axes.set_yscale("log")
