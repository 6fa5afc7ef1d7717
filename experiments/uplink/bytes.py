"""The figure of docs/uplink.md, from ``curves.csv`` of the comparisons of compressors.

python experiments/uplink/bytes.py results docs/images/uplink.png
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.core.storage.files import write_bytes
from fedtide.report.charts.style import WIDTH, line_look, paper, png

NAMES = {
    "none": "not compressed",
    "qsgd": "qsgd, 7 levels",
    "top_k": "top 5 %, with error feedback",
    "top_k_forgets": "top 5 %, without",
    "random_k": "random 5 %, with error feedback",
    "sign": "sign, with error feedback",
    "sign_no_ef": "sign, without",
}
WORLDS = {
    "compressors_fmnist": ("Fashion-MNIST, half of the devices change", "accuracy, %"),
    "compressors_flights": ("Flights by month", "AUROC, %"),
}
WINDOW = 3


def draw(axes: Axes, found: pd.DataFrame, title: str, score: str) -> None:
    """The score over the megabytes sent so far, running means."""
    for place, (label, name) in enumerate(NAMES.items()):
        one = found[found["label"] == label].sort_values("round")
        smooth = 100 * one["score"].rolling(WINDOW, min_periods=1).mean()
        dash = "dashed" if label.endswith("_forgets") else "solid"
        axes.plot(one["megabytes"], smooth, linestyle=dash, color=line_look(place).color, label=name, linewidth=1.4)
    axes.set_xscale("log")
    axes.set_xlabel("megabytes sent by clients")
    axes.set_ylabel(score)
    axes.set_title(title)


def main(results: Path, file: Path) -> None:
    """Draw it."""
    with paper():
        figure = Figure(figsize=(WIDTH, 3.8), layout="constrained")
        for axes, (name, texts) in zip(figure.subplots(1, 2), WORLDS.items(), strict=True):
            draw(axes, pd.read_csv(results / name / "curves.csv"), *texts)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
        write_bytes(file, png(figure))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
