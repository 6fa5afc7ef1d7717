"""The figure of docs/reports/robust.md, from ``ages.csv`` and ``kept.csv``.

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
    "mean": "mean",
    "clip": "clip at the median length",
    "newcomer_aware_clip": "clip, patient with newcomers",
    "trimmed_mean": "trimmed mean",
    "median": "median",
    "bucket_median": "median of pairs",
    "geometric_median": "geometric median",
    "centered_clipping": "centered clipping",
    "multi_krum": "multi-Krum",
    "krum": "Krum",
}
DRAWN = ["clip", "newcomer_aware_clip", "trimmed_mean", "median", "geometric_median", "multi_krum"]
GROUPS = {  # (attack, group): name, marker
    ("none", "Newcomers"): ("newcomers, first 5 rounds, nobody attacks", "o"),
    ("none", "Returners"): ("returners, first 5 rounds, nobody attacks", "^"),
    ("sign_flip", "Attackers"): ("attackers, sign flip", "x"),
    ("ipm", "Attackers"): ("attackers, inner product", "+"),
    ("alie", "Attackers"): ("attackers, a little is enough", "1"),
}
WINDOW = 5


def by_age(axes: Axes, found: pd.DataFrame) -> None:
    """What is kept by rounds since arrival, running means."""
    newcomers = found[found["group"] == "Newcomers"]
    for place, label in enumerate(DRAWN):
        kept = newcomers[newcomers["label"] == label].sort_values("age")
        smooth = kept["mean"].rolling(WINDOW, min_periods=1).mean()
        axes.plot(kept["age"], smooth, color=line_look(place).color, label=NAMES[label], linewidth=1.4)
    axes.axhline(1, color=GRAY, linewidth=0.8, linestyle="dashed")
    axes.set_xlabel("rounds since arrival")
    axes.set_ylabel("kept, over that of residents")
    axes.set_ylim(bottom=0)
    axes.set_title("Newcomers, nobody attacks")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)


def by_rule(axes: Axes, found: pd.DataFrame) -> None:
    """What is kept of newcomers and of attackers."""
    kept = found.set_index(["attack", "group", "label"])["mean"].sort_index()
    order = kept["none", "Newcomers"].reindex(list(NAMES)).sort_values().index
    for place, (group, (name, marker)) in enumerate(GROUPS.items()):
        values = kept[group].reindex(order)
        axes.plot(values, range(len(order)), marker, color=line_look(place).color, label=name, markersize=6)
    axes.axvline(1, color=GRAY, linewidth=0.8, linestyle="dashed")
    axes.set_yticks(range(len(order)), [NAMES[label] for label in order])
    axes.grid(axis="x", color="#e4e4e4")
    axes.set_xlim(left=0)
    axes.set_xlabel("kept, over that of residents")
    axes.set_title("Newcomers and attackers")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=1, fontsize=8)


def main(results: Path, file: Path) -> None:
    """Draw it."""
    with paper():
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        by_age(left, pd.read_csv(results / "ages.csv"))
        by_rule(right, pd.read_csv(results / "kept.csv"))
        write_bytes(file, png(figure))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
