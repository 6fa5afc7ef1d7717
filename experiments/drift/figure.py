"""Figures of the reports on drift, from recorded results.

    python experiments/drift/figure.py results docs/reports/images

draws ``drift.png`` from ``drift_fmnist/curves.csv`` and ``above.csv``, and ``drift_planted.png`` from
``drift_planted/regret.csv``.
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.core.storage.files import write_bytes
from fedtide.report.charts.style import GRAY, PALETTE, WIDTH, line_look, paper, png

NAMES = {
    "feddrift": "FedDrift",
    "ifca": "IFCA",
    "true_concepts": "one model per true concept",
    "fedccfa": "FedCCFA",
    "cfl_core_set": "CFL core set",
    "fedavg": "FedAvg",
    "scaffold": "SCAFFOLD",
    "fedssg": "FedSSG",
    "adaptive_fedavg": "Adaptive-FedAvg",
    "flash": "Flash",
    "oracle_reset": "oracle reset",
    "detector_rate": "detector, raises the rate",
    "detector_reset": "detector, resets the model",
}
DRAWN = ["feddrift", "ifca", "true_concepts", "fedccfa", "cfl_core_set", "fedavg"]
DRIFT = (50, 75)
WORLDS = {  # title: angle, share of the clients that turn
    "rule turns by 90° for half of the clients": (90.0, 0.5),
    "rule turns by 180° for half of the clients": (180.0, 0.5),
}


def curves(axes: Axes, found: pd.DataFrame) -> None:
    """Accuracy by round."""
    axes.axvspan(*DRIFT, color="#f0f0f0", linewidth=0)
    for place, label in enumerate(DRAWN):
        one = found[found["label"] == label]
        axes.plot(one["round"], one["mean"], color=line_look(place).color, label=NAMES[label], linewidth=1.2)
    axes.set_xlabel("round (shaded: labels are swapped)")
    axes.set_ylabel("accuracy, mean over clients and seeds, %")
    axes.set_title("Accuracy by round")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)


def gains(axes: Axes, found: pd.DataFrame) -> None:
    """Differences from FedAvg under drift, the best above."""
    rows = found[found["span"] == "under"].dropna(subset=["low"]).sort_values("difference")
    places = range(len(rows))
    axes.hlines(places, rows["low"], rows["high"], color=PALETTE[0], linewidth=1.4)
    axes.plot(rows["difference"], places, "o", color=PALETTE[0], markersize=5)
    axes.axvline(0, color=GRAY, linewidth=0.8)
    axes.set_yticks(places, [NAMES[label] for label in rows["label"]])
    axes.grid(axis="x", color="#e4e4e4")
    axes.set_xlabel("accuracy minus FedAvg's, points")
    axes.set_title("Rounds under drift, 95 % intervals")


def regrets(grid: list[Axes], found: pd.DataFrame) -> None:
    """Distance to the Bayes classifier under planted drift; methods from best to worst at 90 degrees."""
    rows = found[found["span"] == "drift"].set_index(["angle", "share", "label"]).sort_index()
    order = [label for label in rows.loc[90.0, 0.5]["mean"].sort_values(ascending=False).index if label in NAMES]
    for axes, (title, world) in zip(grid, WORLDS.items(), strict=True):
        mine = rows.loc[world].reindex(order)
        places = range(len(order))
        axes.errorbar(mine["mean"], places, xerr=mine["std"], fmt="o", color=PALETTE[0], markersize=5, elinewidth=1)
        best = rows.loc[world]["mean"]["best single model"]
        axes.axvline(best, color=GRAY, linewidth=0.9, linestyle="dashed", label="best single linear model")
        axes.set_yticks(places, [NAMES[label] for label in order])
        axes.grid(axis="x", color="#e4e4e4")
        axes.set_xlim(left=0)
        axes.set_xlabel("points below the Bayes classifier")
        axes.set_title(title)
    grid[1].legend(loc="center", fontsize=8)


def main(results: Path, folder: Path) -> None:
    """Draw both."""
    with paper():
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        curves(left, pd.read_csv(results / "drift_fmnist/curves.csv"))
        gains(right, pd.read_csv(results / "drift_fmnist/above.csv"))
        write_bytes(folder / "drift.png", png(figure))
        figure = Figure(figsize=(WIDTH, 3.8), layout="constrained")
        regrets(list(figure.subplots(1, 2, sharey=True)), pd.read_csv(results / "drift_planted/regret.csv"))
        write_bytes(folder / "drift_planted.png", png(figure))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
