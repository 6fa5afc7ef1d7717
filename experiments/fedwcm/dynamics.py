"""The figure of the server's momentum.

    python experiments/fedwcm/dynamics.py runs report

writes ``momentum.png``: norm of the momentum, and weight of the gradient in a local step, as used in the next round. Lines:
mean of the complete runs; shading: range over the seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

import fedtide
from fedtide.core.storage.files import write_bytes
from fedtide.records.frames import METHOD, Records, by_method
from fedtide.report.charts.chart import Axis, Chart, Panel, ranged
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.pictures import Drawing
from fedtide.report.charts.style import line_look

MOST_LINES = 8
"""Lines that one panel can show."""


def momentum(records: Records) -> Chart | None:
    """Norm of the server's momentum and alpha, for algorithms that have them."""
    norm = (records.history, "momentum_norm", "Norm of the momentum")
    return _chart([norm, (records.history, "alpha", "Weight of the gradient")])


def _chart(panels: list[tuple[pd.DataFrame, str, str]]) -> Chart | None:
    """Panels side by side, each a column over the rounds; a row of them per algorithm if lines are many; None without data."""
    drawn = [(frame[frame["state"] == "complete"].dropna(subset=[name]), name, title) for frame, name, title in panels]
    if any(frame.empty for frame, _, _ in drawn):
        return None
    rounds, labels = Axis("Communication round"), drawn[0][0]["label"].unique().tolist()
    if max(len(frame[METHOD].drop_duplicates()) for frame, _, _ in drawn) <= MOST_LINES:
        return Chart(rounds, Axis(""), tuple(_panel(*panel) for panel in drawn), len(drawn), 3.2)
    starts = list(dict.fromkeys(start for frame, _, _ in drawn for start in frame["initializer"]))
    parts = tuple(_panel(*panel, label, starts) for label in labels for panel in drawn)
    columns = len(drawn) if len(drawn) > 1 else 3
    return Chart(rounds, Axis(""), parts, columns, 0.6 + 1.8 * -(-len(parts) // columns))


def _panel(frame: pd.DataFrame, name: str, title: str, label: str = "", starts: Sequence[str] = ()) -> Panel:
    """The lines of all methods, or those of one algorithm, a line per initializer, on an axis for all algorithms."""
    skewed = frame[name].max() > 20 * frame[name].median() > 0
    y = Axis(title, log=bool(skewed))
    if label:
        low, high = float(frame[name].min()), float(frame[name].max())
        room = 0.04 * (high - low)
        y = replace(y, low=low - room, high=high + room) if high > low and not skewed else y
        frame = frame[frame["label"] == label]
    groups = by_method(frame)
    names, series = method_names(list(groups)), []
    for number, (method, rows) in enumerate(groups.items()):
        look = line_look(starts.index(method[1]) if label else number)
        of = rows.groupby("round")[name].agg(["mean", "min", "max"])
        series.append(ranged(method[1] if label else names[method], of, look.color, dash=look.dash))
    return Panel(label, tuple(series), y=y)


def main(runs: Path, out: Path) -> list[Path]:
    """Write the figure, if the runs of a folder have data for it; its file."""
    if (chart := momentum(fedtide.load(runs))) is None:
        return []
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / "momentum.png", Drawing("momentum", "", "", chart).files(["png"])["png"])
    return [out / "momentum.png"]


if __name__ == "__main__":
    print(*main(*map(Path, sys.argv[1:])), sep="\n")
