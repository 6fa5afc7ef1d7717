"""A score over communication cost, with the Pareto front of the methods."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fedtide.report.front import pareto_front
from fedtide.report.records import METHOD, Records
from fedtide.report.style import GREY, WIDTH, line_style, paper, png, score_axis
from fedtide.report.table import Table


def score_over_cost(records: Records, table: Table) -> bytes | None:
    """Best score over kappa, a dot per method with the range over its seeds, and the Pareto front.

    None unless clients of some run average inside a round, and two methods have a complete run.
    """
    inside = [settings.get("exchange.name", "end") != "end" for settings in records.settings.values()]
    if not any(inside):
        return None
    costs = records.history.groupby("key", sort=False)["kappa"].mean()
    runs = table.runs[table.runs["state"] == "complete"].assign(kappa=lambda frame: frame["key"].map(costs))
    runs = runs.dropna(subset=["kappa", "best"])
    points = runs.groupby(METHOD, sort=False).agg(
        kappa=("kappa", "mean"), best=("best", "mean"), low=("best", "min"), high=("best", "max")
    )
    if len(points) < 2:
        return None
    one = points.index.get_level_values("initialiser").nunique() == 1
    best = pareto_front(points["kappa"].tolist(), (table.score.sign * points["best"]).tolist())
    with paper():
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes = figure.subplots()
        chosen = points.iloc[best]
        axes.step(chosen["kappa"], chosen["best"], where="post", color=GREY, linewidth=1.0, zorder=1)
        rows = zip(points.index, points.to_dict("records"), strict=True)
        for number, ((label, start), row) in enumerate(rows):
            colour = line_style(number)["color"]
            axes.plot([row["kappa"]] * 2, [row["low"], row["high"]], color=colour, linewidth=1.2, alpha=0.6)
            axes.plot(row["kappa"], row["best"], "o", color=colour, markersize=5)
            name = label if one else f"{label} · {start}"
            axes.annotate(name, (row["kappa"], row["best"]), xytext=(4, 3), textcoords="offset points", fontsize=7.5)
        axes.set_xscale("log")
        axes.grid(visible=True, axis="both")
        score_axis(axes, table.score, float(np.min(points["low"])), float(np.max(points["high"])))
        axes.set_xlabel("Communication cost per round (kappa; 1 is an exchange after every local step)")
        axes.set_ylabel(f"Best test {table.score.words}")
        return png(figure)
