"""The figure of docs/reports/personal.md, from the ``clients.csv`` of both experiments.

python experiments/personal/figure.py results docs/reports/images/personal.png
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.core.storage.files import write_bytes
from fedtide.report.charts.style import GRAY, PALETTE, WIDTH, paper, png

NAMES = {
    "fedavg": "FedAvg",
    "fedavg_steps": "FedAvg + fine-tuning",
    "fedavg_20": "FedAvg + 20 steps",
    "scaffold": "SCAFFOLD",
    "fedssg": "FedSSG",
    "local": "local training only",
    "ditto": "Ditto",
    "apfl": "APFL",
    "pfedme": "pFedMe",
    "fedper": "FedPer",
    "fedper_mean": "FedPer, mean head",
    "fedrep": "FedRep",
    "fedbabu": "FedBABU + fine-tuning",
    "per_fedavg": "Per-FedAvg + fine-tuning",
}
MARKS = {
    "mean": ("all clients", "o"),
    "newcomers": ("new clients", "^"),
    "worst_decile": ("worst 10 % of clients", "s"),
    "unknown": ("clients not sampled yet", "x"),
}


def points(axes: Axes, table: pd.DataFrame, order: list[str], name: str, color: str, marker: str) -> None:
    """Means of one figure, a row per method, with standard deviations."""
    means, spread = (table[name, part].reindex(order) for part in ("mean", "std"))
    rows = range(len(order), 0, -1)
    label = MARKS[name][0] if name in MARKS else None
    axes.errorbar(means, rows, xerr=spread, fmt=marker, color=color, label=label, markersize=5, elinewidth=0.8)


def main(results: Path, file: Path) -> None:
    """Draw it: accuracies by group of clients, and gains over the method's own global model."""
    images, flights = (
        pd.read_csv(results / name / "clients.csv", header=[0, 1], index_col=0)
        for name in ("personal_fmnist", "personal_flights")
    )
    order = [label for label in images.sort_values(("mean", "mean"), ascending=False).index if label in NAMES]
    with paper():
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        for (name, (_, marker)), color in zip(MARKS.items(), PALETTE, strict=False):
            points(left, images, order, name, color, marker)
        left.axvline(images.loc["fedavg", ("mean", "mean")], color=GRAY, linewidth=0.8, linestyle="dashed")
        left.set_title("Fashion-MNIST: accuracy by client group")
        left.set_xlabel("accuracy, % (dashed: FedAvg, all clients)")
        left.set_yticks(range(len(order), 0, -1), [NAMES[label] for label in order])
        left.legend(title="evaluated on", loc="upper center", bbox_to_anchor=(0.3, -0.14), ncols=2, fontsize=8)
        gain = flights["gain", "mean"].dropna().sort_values(ascending=False)
        own = [label for label in gain.index if label in NAMES]
        points(right, flights, own, "gain", PALETTE[0], "o")
        right.set_yticks(range(len(own), 0, -1), [NAMES[label] for label in own])
        right.axvline(0, color=GRAY, linewidth=0.8, linestyle="dashed")
        right.set_title("Flights: gain by own model")
        right.set_xlabel("accuracy difference, points")
        for axes in (left, right):
            axes.grid(axis="x", color="#e4e4e4")
        write_bytes(file, png(figure))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
