"""The figure of docs/reports/robust.md, from ``kept.csv``.

python experiments/uplink/figure.py results/newcomers_fmnist docs/reports/images/newcomers.png
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.core.storage.files import write_bytes
from fedtide.report.charts.style import GRAY, WIDTH, line_look, paper, png

NAMES = {
    "clip": "clip at the median norm",
    "newcomer_aware_clip": "newcomer-aware clip",
    "trimmed_mean": "trimmed mean",
    "median": "median",
    "bucket_median": "median with 2-bucketing",
    "geometric_median": "geometric median",
    "centered_clipping": "centered clipping",
    "multi_krum": "multi-Krum",
    "krum": "Krum",
}
PANELS = {  # title: (attack, group) -> name
    "Benign clients, no attack": {
        ("none", "Newcomers"): "new clients, first 5 rounds",
        ("none", "Returners"): "returning clients, first 5 rounds",
    },
    "Attackers": {
        ("sign_flip", "Attackers"): "sign flip",
        ("ipm", "Attackers"): "IPM",
        ("alie", "Attackers"): "ALIE",
    },
}
MARKERS = ("o", "s", "^")


def draw(axes: Axes, found: pd.DataFrame, order: list[str], groups: dict[tuple[str, str], str]) -> None:
    """Relative weights of some groups: mean and standard deviation over the seeds, a row per rule."""
    for place, (group, name) in enumerate(groups.items()):
        mine = found.loc[group].reindex(order)
        rows = [row + 0.22 * (place - (len(groups) - 1) / 2) for row in range(len(order))]
        look = {"fmt": MARKERS[place], "color": line_look(place).color, "label": name, "markersize": 4.5}
        axes.errorbar(mine["mean"], rows, xerr=mine["std"], elinewidth=1, **look)
    axes.axvline(1, color=GRAY, linewidth=0.8, linestyle="dashed")
    axes.grid(axis="x", color="#e4e4e4")
    axes.set_xlim(left=0)
    axes.set_xlabel("relative acceptance weight (resident client = 1)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=len(groups), fontsize=8)


def main(results: Path, file: Path) -> None:
    """Draw it."""
    found = pd.read_csv(results / "kept.csv").set_index(["attack", "group", "label"]).sort_index()
    order = list(found.loc["none", "Newcomers"]["mean"].reindex(list(NAMES)).sort_values().index)
    with paper():
        figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
        grid = figure.subplots(1, 2, sharey=True)
        for axes, (title, groups) in zip(grid, PANELS.items(), strict=True):
            draw(axes, found, order, groups)
            axes.set_title(title)
        grid[0].set_yticks(range(len(order)), [NAMES[label] for label in order])
        write_bytes(file, png(figure))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
