"""Accuracy at the end and paired comparisons of a settings file's runs, for each availability.

    python experiments/away/availabilities.py results/away_softmax/best.yaml results/away_softmax [KEY=VALUE ...]

reads the settings, with overrides, and the runs in ``runs/``, and writes ``runs.csv``, ``methods.csv``, ``comparisons.csv`` and
``availabilities.png``. Runs that are not complete have no numbers; ``methods.csv`` counts those that are.
``python experiments/away/availabilities.py results/away_softmax`` draws the figure again from ``runs.csv``.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import write_bytes, write_text
from fedtide.records import frames as records
from fedtide.records.measures import statistics
from fedtide.report.charts.style import GRAY, PALETTE, WIDTH, paper, png
from fedtide.report.comparison import run_directories
from fedtide.settings.params import Params

AVAILABILITIES = ["stationary", "sine", "staircase", "interleaved"]
BOUND, REFERENCE = "full_participation", "fedavg"
LAST = 50
"""Rounds at the end of a run over which scores are averaged, as far as they are evaluated."""
SCORES = ["accuracy", "rare", "loss", "accuracy_all", "spread", "gate"]
"""``rare``: accuracy of the last model on the second half of the classes, which are half as available; ``accuracy_all``: of
the mean of all clients' latest models; ``spread``: standard deviation of the accuracy over the last rounds; ``gate``: the
largest of FedSSG."""


def read(best: Path, overrides: list[str], runs: Path) -> pd.DataFrame:
    """A row per run, with its scores and a column ``availability``, all or the one of an override."""
    key, found = "participation.dynamics=", []
    for name in [item.removeprefix(key) for item in overrides if item.startswith(key)] or AVAILABILITIES:
        params = Params.read(best, [*overrides, f"{key}{name}"])
        try:
            read = records.load(run_directories(params, runs))
        except SettingsError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        found.append(scores(read).assign(availability=name))
    rows = pd.concat(found, ignore_index=True)
    return rows[["availability", *rows.columns.drop("availability")]]


def scores(read: records.Records) -> pd.DataFrame:
    """A row per run: ``label``, ``seed``, ``state`` and the scores."""
    history = read.history.reindex(columns=dict.fromkeys([*read.history.columns, "test_accuracy_all"]))
    last = history[history["round"] > history["round"].max() - LAST].groupby("key")
    classes = read.per_class.set_index("key").filter(regex=r"^class_\d+$")
    runs = read.runs.set_index("key")[["label", "seed", "state"]]
    found = runs.assign(
        accuracy=last["test_accuracy"].mean(),
        rare=classes.iloc[:, classes.shape[1] // 2 :].mean(axis=1),
        loss=last["test_loss"].mean(),
        accuracy_all=last["test_accuracy_all"].mean(),
        spread=last["test_accuracy"].std(),
        gate=read.clients.groupby("key")["gate"].max(),
    )
    found.loc[found["state"] != "complete", SCORES] = np.nan
    return found


def methods(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and sample standard deviation over the seeds of each method, by availability."""
    by = ["availability", "label"]
    both = rows[rows["state"] == "complete"].groupby(by, sort=False)[SCORES].agg(["mean", "std"])
    both.columns = [name if kind == "mean" else f"{name}_std" for name, kind in both.columns]
    states = rows.groupby(by, sort=False)["state"].value_counts().unstack(fill_value=0)
    return states.reindex(columns=["complete", "diverged", "unfinished"], fill_value=0).join(both).reset_index()


def comparisons(rows: pd.DataFrame) -> pd.DataFrame:
    """Differences from FedAvg, seed by seed, for each availability and, where a method has completed all, for their mean.

    Holm's correction is over the methods, within an availability.
    """
    complete = rows[(rows["state"] == "complete") & (rows["label"] != BOUND)]
    found = []
    for score in ("accuracy", "rare"):
        whole = complete.pivot_table(index=["seed", "availability"], columns="label", values=score, sort=False)
        tables = {name: mine.droplevel("availability") for name, mine in whole.groupby("availability", sort=False)}
        tables["mean"] = whole.groupby("seed").mean().where(whole.groupby("seed").count() == len(tables))
        for name, table in tables.items():
            if REFERENCE not in table or table.shape[1] < 2:
                continue
            paired = statistics.compare(table, REFERENCE)
            paired["reading"] = [statistics.verdict(row) for row in paired.to_dict("records")]
            found.append(paired.rename_axis("method").reset_index().assign(score=score, availability=name))
    table = pd.concat(found, ignore_index=True)
    return table[["score", "availability", *table.columns.drop(["score", "availability"])]]


def picture(rows: pd.DataFrame) -> bytes:
    """Accuracy minus FedAvg's, a panel per availability and a row per method: every seed, and their mean.

    The axis has room for three times the middle half of the differences; arrows at its edge are seeds beyond it.
    """
    complete = rows[rows["state"] == "complete"]
    table = 100 * complete.pivot_table(index=["availability", "seed"], columns="label", values="accuracy", sort=False)
    gaps = table.sub(table[REFERENCE], axis=0).drop(columns=REFERENCE)
    order = list(gaps.mean().sort_values().index)
    low, high = gaps.stack().quantile([0.25, 0.75])
    low, high = low - 1.5 * (high - low) - 0.2, high + 1.5 * (high - low) + 0.2
    names = list(dict.fromkeys(complete["availability"]))
    with paper():
        figure = Figure(figsize=(WIDTH, 1.0 + 0.22 * len(order)), layout="constrained")
        grid = figure.subplots(1, len(names), sharex=True, sharey=True, squeeze=False)[0]
        for axes, name in zip(grid, names, strict=True):
            mine = gaps.loc[name].reindex(columns=order)
            for place, label in enumerate(order):
                color = GRAY if label == BOUND else PALETTE[0]
                for value in mine[label].dropna():
                    marker = "<" if value < low else ">" if value > high else "o"
                    axes.plot(np.clip(value, low, high), place, marker, color=color, markersize=3.5, alpha=0.5)
                if low <= mine[label].mean() <= high:
                    axes.plot(mine[label].mean(), place, "|", color=color, markersize=11, markeredgewidth=1.8)
            axes.axvline(0, color=GRAY, linewidth=0.8)
            axes.grid(axis="x")
            axes.set_xlim(low - 0.1, high + 0.1)
            axes.set_title(name)
        grid[0].set_yticks(range(len(order)), order)
        figure.supxlabel("accuracy minus FedAvg's, points (dots: seeds, bar: mean)", fontsize=9)
        return png(figure)


def main(best: Path, folder: Path, overrides: list[str]) -> None:
    """Write the results of the runs of some settings into a folder."""
    rows = read(best, overrides, Path("runs"))
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("runs", rows), ("methods", methods(rows)), ("comparisons", comparisons(rows))):
        write_text(folder / f"{name}.csv", table.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
    write_bytes(folder / "availabilities.png", picture(rows))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_bytes(Path(sys.argv[1]) / "availabilities.png", picture(pd.read_csv(Path(sys.argv[1]) / "runs.csv")))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
