"""The figure of docs/reports/drift.md, from ``curves.csv`` and ``regret.csv``.

python experiments/drift/figure.py results docs/reports/images/drift.png
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
    "true_concepts": "true concepts",
    "fedccfa": "FedCCFA",
    "cfl_core_set": "CFL core set",
    "fedavg": "FedAvg",
    "scaffold": "SCAFFOLD",
    "fedssg": "FedSSG",
    "adaptive_fedavg": "Adaptive-FedAvg",
    "flash": "Flash",
    "oracle_reset": "told, starts again",
    "detector_rate": "detector, raises rate",
    "detector_reset": "detector, starts again",
}
DRAWN = ["feddrift", "ifca", "true_concepts", "fedccfa", "cfl_core_set", "fedavg"]
DRIFT = (50, 75)
MARKS = {  # world (angle, share), span, marker
    "nothing drifts": (0.0, 0.0, "drift", "o"),
    "half of the clients turn by 90°": (90.0, 0.5, "drift", "s"),
    "all turn by 90°, first 5 rounds": (90.0, 1.0, "first 5", "^"),
    "and back, first 5 rounds": (90.0, 1.0, "first 5 back", "v"),
}


def curves(axes: Axes, found: pd.DataFrame) -> None:
    """Accuracy by round."""
    axes.axvspan(*DRIFT, color="#f0f0f0", linewidth=0)
    for place, label in enumerate(DRAWN):
        one = found[found["label"] == label]
        look = line_look(place)
        axes.plot(one["round"], one["mean"], color=look.color, label=NAMES[label], linewidth=1.2)
    axes.set_xlabel("round")
    axes.set_ylabel("accuracy of the clients, %")
    axes.set_ylim(bottom=60)
    axes.set_title("Fashion-MNIST: labels are swapped, and back")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize=8)


def regrets(axes: Axes, found: pd.DataFrame) -> None:
    """Points lost in each world; methods from best to worst where half of the clients turn."""
    by = found.set_index(["angle", "share", "span", "label"])["mean"].sort_index()
    order = [label for label in by[90.0, 0.5, "drift"].sort_values(ascending=False).index if label in NAMES]
    for (name, (angle, share, span, marker)), color in zip(MARKS.items(), PALETTE, strict=False):
        lost = by[angle, share, span].reindex(order)
        axes.plot(lost, range(len(order)), marker, color=color, label=name, markersize=5, alpha=0.85)
    axes.axvline(by[90.0, 0.5, "drift", "best single model"], color=GRAY, linewidth=0.8, linestyle="dashed")
    axes.set_yticks(range(len(order)), [NAMES[label] for label in order])
    axes.grid(axis="x", color="#e4e4e4")
    axes.set_xlabel("points below the classifier that knows the concepts")
    axes.set_title("Planted drift: what is lost")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=2, fontsize=8)


def main(results: Path, file: Path) -> None:
    """Draw it."""
    with paper():
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        curves(left, pd.read_csv(results / "drift_fmnist/curves.csv"))
        regrets(right, pd.read_csv(results / "drift_planted/regret.csv"))
        write_bytes(file, png(figure))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
