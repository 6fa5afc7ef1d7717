"""Figure and table of the searches over a grid of one setting.

    python experiments/tuning/grids.py TUNING RESULTS

reads ``TUNING/<search>/trials.csv`` for every search below, copies them to ``RESULTS/<search>.csv``, draws
``RESULTS/grids.png`` and prints a table: mean and sample standard deviation over the seeds. In the figure every seed is
compared with itself: the difference from the value that is best on average, mean and range over the seeds.
``python experiments/tuning/grids.py RESULTS`` draws again what is in ``RESULTS``.
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fedtide.core.storage.files import write_bytes
from fedtide.report.charts.style import PALETTE, WIDTH, paper, png

SEARCHES = {
    "r": "Dynamic initialization: R",
    "temperature": "MOON: temperature",
    "fedssg": "FedSSG: alpha",
    "feddyn": "FedDyn: alpha",
}


def read(path: Path) -> pd.DataFrame:
    """A row per value, in their order.

    ``mean`` and ``sd``: over the seeds, in percent. ``gap``, ``low`` and ``high``: mean and range over the seeds of the
    difference from the value with the best mean.
    """
    trials = pd.read_csv(path)
    seeds = 100 * trials.filter(regex=r"^seed \d+$")
    gaps = seeds - seeds.loc[seeds.mean(axis=1).idxmax()]
    columns = {
        "value": trials.iloc[:, -1],
        "mean": seeds.mean(axis=1),
        "sd": seeds.std(axis=1),
        "gap": gaps.mean(axis=1),
        "low": gaps.min(axis=1),
        "high": gaps.max(axis=1),
    }
    return pd.DataFrame(columns).sort_values("value")


def draw(searches: dict[str, pd.DataFrame]) -> bytes:
    """A panel per search, as a PNG."""
    with paper():
        figure = Figure(figsize=(WIDTH, 0.6 * WIDTH), layout="constrained")
        for axes, (name, frame) in zip(figure.subplots(2, 2).flat, searches.items(), strict=True):
            spans = [frame["gap"] - frame["low"], frame["high"] - frame["gap"]]
            axes.errorbar(frame["value"], frame["gap"], spans, color=PALETTE[0], marker="o", capsize=3)
            axes.set_xscale("log")
            axes.set_title(SEARCHES[name], loc="left")
            axes.set_xlabel("value (log scale)")
        figure.supylabel("validation accuracy minus that of the best value, points", fontsize=9)
        return png(figure)


def table(searches: dict[str, pd.DataFrame]) -> str:
    """All searches in Markdown, two columns each."""
    cells = pd.concat(
        {
            SEARCHES[name]: pd.DataFrame(
                {
                    "value": [f"{value:.3g}" for value in frame["value"]],
                    "accuracy": [f"{mean:.1f} ± {sd:.1f}" for mean, sd in zip(frame["mean"], frame["sd"], strict=True)],
                }
            )
            for name, frame in searches.items()
        },
        axis=1,
    )
    head = "| " + " | ".join(name if column == "value" else "" for name, column in cells.columns) + " |"
    rows = ["| " + " | ".join(row) + " |" for row in cells.itertuples(index=False)]
    return "\n".join([head, "|" + " --- |" * cells.shape[1], *rows])


def main(results: Path, tuning: Path | None = None) -> None:
    """Read, copy, draw, print."""
    for name in SEARCHES if tuning is not None else ():
        write_bytes(results / f"{name}.csv", (tuning / name / "trials.csv").read_bytes())
    searches = {name: read(results / f"{name}.csv") for name in SEARCHES}
    write_bytes(results / "grids.png", draw(searches))
    print(table(searches))


if __name__ == "__main__":
    main(*map(Path, reversed(sys.argv[1:])))
