"""The figure of docs/uplink.md, from ``table.csv`` of the comparisons of compressors.

python experiments/uplink/bytes.py results docs/images/uplink.png
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.core.storage.files import write_bytes
from fedtide.report.charts.style import WIDTH, line_look, logarithmic, paper, png

NAMES = {  # label: name, number of the color, whether there is error feedback
    "none": ("no compression", 4, True),
    "qsgd": ("qsgd, 7 levels", 0, True),
    "top_k": ("top_k 5 %", 1, True),
    "top_k_forgets": ("top_k 5 %, no error feedback", 1, False),
    "sign": ("sign", 2, True),
    "sign_no_ef": ("sign, no error feedback", 2, False),
    "random_k": ("random_k 5 %", 3, True),
}
WORLDS = {
    "compressors_fmnist": ("Fashion-MNIST, changing clients", "final accuracy, %"),
    "compressors_flights": ("Flights by month", "final AUROC, %"),
}


def draw(axes: Axes, found: pd.DataFrame, title: str, score: str) -> None:
    """The score at the end over the megabytes sent: mean and standard deviation over the seeds."""
    for label, (name, color, feedback) in NAMES.items():
        row = found.loc[label]
        color_of = line_look(color).color
        face = color_of if feedback else "white"
        look = {"color": color_of, "mfc": face, "label": name, "markersize": 6, "elinewidth": 1, "capsize": 2}
        axes.errorbar(row["megabytes"], row["score"], row["score_std"], fmt="o", **look)
    axes.set_xscale("log")
    logarithmic(axes.xaxis)
    axes.set_xlabel("megabytes uploaded in the run")
    axes.set_ylabel(score)
    axes.set_title(title)


def main(results: Path, file: Path) -> None:
    """Draw it."""
    with paper():
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        for axes, (name, texts) in zip(figure.subplots(1, 2), WORLDS.items(), strict=True):
            draw(axes, pd.read_csv(results / name / "table.csv", index_col="label"), *texts)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
        write_bytes(file, png(figure))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
