"""The figure of docs/personal.md, from the ``clients.csv`` of both experiments.

python experiments/personal/figure.py results docs/images/personal.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.core.files import write_bytes
from fedtide.report.charts.style import GREY, PALETTE, WIDTH, paper, png

NAMES = {
    "fedavg": "FedAvg",
    "fedavg_steps": "FedAvg, then local steps",
    "scaffold": "SCAFFOLD",
    "fedssg": "FedSSG",
    "local": "each alone",
    "ditto": "Ditto",
    "apfl": "APFL",
    "pfedme": "pFedMe",
    "fedper": "FedPer",
    "fedper_mean": "FedPer, mean head",
    "fedrep": "FedRep",
    "fedbabu": "FedBABU, then local steps",
    "per_fedavg": "Per-FedAvg, then local steps",
}
MARKS = {
    "mean": ("all clients", "o"),
    "newcomers": ("newcomers", "^"),
    "unknown": ("not drawn yet", "x"),
    "worst_decile": ("worst tenth", "s"),
}
PARTS = {"personal_fmnist": "Fashion-MNIST, Dirichlet 0.1", "personal_flights": "Late flights by aircraft"}


def draw(axes: Axes, table: pd.DataFrame, title: str, order: list[str], marks: list[str]) -> None:
    """Accuracies of groups of clients, a row per method."""
    rows = range(len(order), 0, -1)
    for name, colour in zip(marks, PALETTE, strict=False):
        label, marker = MARKS[name]
        means, spread = (table[name, part].reindex(order) for part in ("mean", "std"))
        axes.errorbar(means, rows, xerr=spread, fmt=marker, color=colour, label=label, markersize=5, elinewidth=0.8)
    axes.axvline(table.loc["fedavg", ("mean", "mean")], color=GREY, linewidth=0.8, linestyle="dashed")
    axes.grid(axis="x", color="#e4e4e4")
    axes.set_xlabel("accuracy, %")
    axes.set_title(title)


def main(results: Path, file: Path) -> None:
    """Draw it."""
    tables = {name: pd.read_csv(results / name / "clients.csv", header=[0, 1], index_col=0) for name in PARTS}
    first = next(iter(tables.values()))
    order = [label for label in first.sort_values(("mean", "mean"), ascending=False).index if label in NAMES]
    with paper():
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        panels = figure.subplots(1, len(tables), sharey=True)
        for axes, (name, table) in zip(panels, tables.items(), strict=True):
            draw(axes, table, PARTS[name], order, [*MARKS][: 4 if name == "personal_fmnist" else 3])
        panels[0].set_yticks(range(len(order), 0, -1), [NAMES[label] for label in order])
        panels[0].legend(loc="upper center", bbox_to_anchor=(0.3, -0.14), ncols=4, fontsize=8)
        write_bytes(file, png(figure))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
