"""Figures of training dynamics: concentration of the neurons' activity, and momentum of the server."""

from __future__ import annotations

import pandas as pd

from fedtide.engine.passes.neurons import SOFTMAX
from fedtide.records.frames import METHOD, Records, by_method
from fedtide.report.charts.chart import Axis, Chart, Panel, ranged
from fedtide.report.charts.figures import method_names
from fedtide.report.charts.style import line_look


def neurons(records: Records) -> Chart | None:
    """Entropy concentration of the hidden layers, unweighted mean over them: mean and range over the complete runs."""
    frame = records.neurons[records.neurons["layer"] != SOFTMAX]
    per_run = frame.groupby([*METHOD, "state", "key", "round"], sort=False, as_index=False)[["entropy"]].mean()
    return _chart([(per_run, "entropy", "Concentration of activity")])


def momentum(records: Records) -> Chart | None:
    """Norm of the server's momentum and alpha, for algorithms that have them."""
    norm = (records.history, "momentum_norm", "Norm of the momentum")
    return _chart([norm, (records.history, "alpha", "Weight of the gradient")])


def _chart(panels: list[tuple[pd.DataFrame, str, str]]) -> Chart | None:
    """Panels side by side, each a column over the rounds; None without data."""
    drawn = [(frame[frame["state"] == "complete"].dropna(subset=[name]), name, title) for frame, name, title in panels]
    if any(frame.empty for frame, _, _ in drawn):
        return None
    return Chart(Axis("Communication round"), Axis(""), tuple(_panel(*panel) for panel in drawn), len(drawn), 3.2)


def _panel(frame: pd.DataFrame, name: str, title: str) -> Panel:
    groups = by_method(frame)
    names, series = method_names(list(groups)), []
    for number, (method, rows) in enumerate(groups.items()):
        look = line_look(number)
        of = rows.groupby("round")[name].agg(["mean", "min", "max"])
        series.append(ranged(names[method], of, look.colour, dash=look.dash))
    skewed = frame[name].max() > 20 * frame[name].median() > 0
    return Panel(series=tuple(series), y=Axis(title, log=bool(skewed)))
