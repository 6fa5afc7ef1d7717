"""Accuracy at equal simulated seconds of all runs of a settings file.

    python experiments/away/at_seconds.py results/away_seconds/best.yaml results/away_seconds [KEY=VALUE ...]

reads the settings, with overrides, and the runs in ``runs/``, and writes ``seconds.csv``, ``methods.csv``, ``comparisons.csv``
and ``seconds.png``. A model holds until the next evaluated one; all runs are read up to the end of the shortest.
``python experiments/away/at_seconds.py results/away_seconds`` draws the figure again from ``seconds.csv``.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedtide.core.storage.files import write_bytes, write_text
from fedtide.records import frames as records
from fedtide.records.measures import metrics, statistics
from fedtide.report.charts.style import GRAY, PALETTE, WIDTH, paper, png
from fedtide.report.comparison import run_directories
from fedtide.settings.params import Params

POINTS = 40
TARGET = 0.75
WINDOW = 0.2
"""Share of the seconds, at their end, over which the accuracy is averaged: that of one model depends on who came last."""


def read(best: Path, overrides: list[str], runs: Path) -> pd.DataFrame:
    """The complete runs' rounds."""
    history = records.load(run_directories(Params.read(best, overrides), runs)).history
    return history[history["state"] == "complete"]


def at_seconds(history: pd.DataFrame) -> pd.DataFrame:
    """A row per method, seed and second: ``label``, ``seed``, ``second``, ``accuracy``."""
    times = np.linspace(0, history.groupby("key")["elapsed"].max().min(), POINTS + 1)[1:]
    return pd.DataFrame(
        [
            {"label": label, "seed": seed, "second": time, "accuracy": metrics.score_at(*_columns(run), time)}
            for (label, seed), run in history.groupby(["label", "seed"], sort=False)
            for time in times
        ]
    )


def ends(history: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """A row per run: accuracy at the end, its spread there, seconds and results to the target, results a second."""
    late = curves[curves["second"] > (1 - WINDOW) * curves["second"].max()].groupby(["label", "seed"], sort=False)
    grouped = history.groupby(["label", "seed"], sort=False)
    return pd.DataFrame(
        {
            "accuracy": late["accuracy"].mean(),
            "spread": late["accuracy"].std(),
            "to_target": grouped[history.columns.tolist()].apply(
                lambda run: metrics.seconds_to_target(*_columns(run), TARGET)
            ),
            "uploads_to_target": grouped[history.columns.tolist()].apply(
                lambda run: metrics.bytes_to_target(run["test_accuracy"], run["exchanges"].cumsum(), TARGET)
            ),
            "uploads_per_second": grouped["exchanges"].sum() / grouped["elapsed"].max(),
        }
    ).reset_index()


def _columns(run: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    return run["test_accuracy"], run["elapsed"]


def methods(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and sample standard deviation over the seeds, of each method."""
    both = rows.groupby("label", sort=False).agg({name: ["mean", "std"] for name in rows.columns[2:]})
    both.columns = [name if kind == "mean" else f"{name}_std" for name, kind in both.columns]
    return both.assign(seeds=rows.groupby("label")["seed"].nunique()).reset_index()


def comparisons(rows: pd.DataFrame) -> pd.DataFrame:
    """Differences of the accuracy at the end from FedAvg, seed by seed, with Holm's correction."""
    paired = statistics.compare(
        rows.pivot_table(index="seed", columns="label", values="accuracy", sort=False), "fedavg"
    )
    reading = [statistics.verdict(row) for row in paired.to_dict("records")]
    return paired.assign(reading=reading).rename_axis("method").reset_index()


def picture(curves: pd.DataFrame) -> bytes:
    """Accuracy minus FedAvg's at the same second and seed, a panel per method: mean over the seeds, and their range."""
    table = 100 * curves.pivot_table(index=["second", "seed"], columns="label", values="accuracy", sort=False)
    gaps = table.sub(table["fedavg"], axis=0).drop(columns="fedavg")
    with paper():
        figure = Figure(figsize=(WIDTH, 2.8), layout="constrained")
        grid = figure.subplots(1, gaps.shape[1], sharex=True, sharey=True, squeeze=False)[0]
        for axes, label in zip(grid, gaps, strict=True):
            seeds = gaps[label].dropna().groupby("second").agg(["mean", "min", "max"])
            axes.plot(seeds.index, seeds["mean"], color=PALETTE[0])
            axes.fill_between(seeds.index, seeds["min"], seeds["max"], color=PALETTE[0], alpha=0.15, linewidth=0)
            axes.axhline(0, color=GRAY, linewidth=0.8)
            axes.set_title(label)
            axes.set_xlabel("simulated seconds")
        grid[0].set_ylabel("accuracy minus FedAvg's, points")
        return png(figure)


def main(best: Path, folder: Path, overrides: list[str]) -> None:
    """Write the results of the runs of some settings into a folder."""
    history = read(best, overrides, Path("runs"))
    curves = at_seconds(history)
    rows = ends(history, curves)
    folder.mkdir(parents=True, exist_ok=True)
    tables = {"seconds": curves, "methods": methods(rows), "comparisons": comparisons(rows)}
    for name, table in tables.items():
        write_text(folder / f"{name}.csv", table.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
    write_bytes(folder / "seconds.png", picture(curves))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_bytes(Path(sys.argv[1]) / "seconds.png", picture(pd.read_csv(Path(sys.argv[1]) / "seconds.csv")))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
