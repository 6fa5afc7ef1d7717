"""Months of the flights: curves, means and paired comparisons of all runs of a settings file.

    python experiments/flights/months.py results/flights_logistic/best.yaml results/flights_logistic [KEY=VALUE ...]

reads the settings, with overrides, and the runs in ``runs/``, and writes ``months.csv``, ``methods.csv``, ``comparisons.csv``
and ``months.png``. Runs that are not complete have no numbers; ``methods.csv`` counts those that are.
``python experiments/flights/months.py results/flights_logistic`` draws the figure again from ``months.csv``.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from matplotlib.figure import Figure

from fedtide.core.storage.files import write_bytes, write_text
from fedtide.records import frames as records
from fedtide.records.frames import METHOD
from fedtide.records.measures import statistics
from fedtide.report.charts.style import GRAY, PALETTE, WIDTH, paper, png
from fedtide.report.comparison import run_directories
from fedtide.settings.params import Params
from fedtide.settings.scores import Score

BOUNDS = ["pooled", "pooled_period", "frozen"]
SCORES = {
    "auroc": {
        "auroc_next": "test_auroc_next",  # of the next month, at the end of a month
        "auroc": "test_auroc",  # of the month, at its end
        "loss_next": "test_loss_next",
        "loss": "test_loss",
        "accuracy_next": "test_accuracy_next",
        "accuracy": "test_accuracy",
        "clients_worst": "client_accuracy_worst_decile",
        "newcomers": "client_accuracy_newcomers",
        "stayers": "client_accuracy_stayers",
    },
    "r2": {name: f"test_{name}" for name in ("r2_next", "r2", "loss_next", "loss", "mae_next", "mae")},
}
"""By main score (AUROC of late flights, R² of the minutes): column of the results -> column of the history in the last round
of a month."""


def months(best: Path, overrides: list[str], runs: Path, main: str) -> pd.DataFrame:
    """A row per run and month: ``label``, ``initializer``, ``seed``, ``state``, ``month`` (from 1) and the scores.

    ``auroc_within`` (``r2_within``) is the mean of the month's main score over its evaluated rounds: it counts how a month
    begins. ``kappa`` is the communication cost of a round: exchanges per local step and client.
    """
    known = [label for label in BOUNDS if label in yaml.safe_load(best.read_text())["algorithms"]]
    grids = [[], *([[f"compare.algorithms={known}", "compare.initializers=[previous]"]] if known else [])]
    directories = [path for grid in grids for path in run_directories(Params.read(best, [*overrides, *grid]), runs)]
    read = records.load(directories)
    history = read.history.rename(columns={"session": "month"})
    last = history.groupby(["key", "month"]).tail(1).set_index(["key", "month"])
    found = last[[*METHOD, "seed", "state"]].assign(
        **{name: last.get(column, np.nan) for name, column in SCORES[main].items()},
        **{f"{main}_within": history.groupby(["key", "month"])[f"test_{main}"].mean()},
        kappa=history.groupby(["key", "month"])["kappa"].mean(),
    )
    return found.reset_index().drop(columns="key")


def methods(rows: pd.DataFrame, main: str) -> pd.DataFrame:
    """Mean over the months, then mean and sample standard deviation over the seeds, of each method."""
    scores = [*SCORES[main], f"{main}_within", "kappa"]
    by_seed = rows[rows["state"] == "complete"].groupby([*METHOD, "seed"], sort=False)[scores].mean()
    both = by_seed.groupby(METHOD, sort=False).agg(["mean", "std"])
    both.columns = [name if kind == "mean" else f"{name}_std" for name, kind in both.columns]
    seeds = rows.groupby(METHOD, sort=False).apply(
        lambda group: pd.Series({kind: group[group["state"] == kind]["seed"].nunique() for kind in _STATES}),
        include_groups=False,
    )
    return seeds.join(both).reset_index()


_STATES = ("complete", "diverged", "unfinished")


def comparisons(rows: pd.DataFrame, main: str) -> pd.DataFrame:
    """Paired differences, month by month, of means over the seeds.

    Algorithms and bounds, months starting from the ``previous`` model, against FedAvg; initializers against ``previous``, for
    each algorithm, and for the mean over those that completed all. A month is a pair: its flights are the same for all.
    ``seeds_low``, ``seeds_high``: range over the seeds of the mean difference. Holm's correction is within a family.
    """
    complete = rows[rows["state"] == "complete"]
    found = []
    for score in (f"{main}_next", main, f"{main}_within", "loss_next"):
        previous = complete[complete["initializer"] == "previous"]
        table = previous.pivot_table(index=["seed", "month"], columns="label", values=score, sort=False)
        bounds = [label for label in table if label in BOUNDS]
        families = {
            "algorithms": (table.drop(columns=bounds), "fedavg"),
            "bounds": (table[["fedavg", *bounds]], "fedavg"),
        }
        starts_of = _by_initializer(complete, score)
        for label, mine in starts_of.groupby("label", sort=False):
            families[f"initializers of {label}"] = (mine.droplevel("label"), "previous")
        families["initializers, all algorithms"] = (starts_of.groupby(["seed", "month"]).mean(), "previous")
        for family, (values, reference) in families.items():
            if reference not in values or values.shape[1] < 2:
                continue
            paired = statistics.compare(values.groupby("month").mean(), reference)
            by_seed = values.sub(values[reference], axis=0).groupby("seed").mean()
            paired = paired.assign(
                seeds_low=by_seed.min(),
                seeds_high=by_seed.max(),
                reading=[statistics.verdict(row) for row in paired.to_dict("records")],
            )
            found.append(
                paired.rename_axis("method").reset_index().assign(score=score, family=family, reference=reference)
            )
    table = pd.concat(found, ignore_index=True)
    return table[["score", "family", "reference", *table.columns.drop(["score", "family", "reference"])]]


def _by_initializer(complete: pd.DataFrame, score: str) -> pd.DataFrame:
    """A column per initializer and a row per algorithm, seed and month, for seeds in which an algorithm completed them all."""
    plain = complete[~complete["label"].isin(BOUNDS)].dropna(subset=[score])
    return plain.pivot_table(index=["label", "seed", "month"], columns="initializer", values=score, sort=False).dropna()


COLUMNS = 4


def picture(rows: pd.DataFrame, main: str) -> bytes:
    """Score of the next month minus FedAvg's, months starting from the previous month's model, a panel per method.

    Mean and range over the seeds. Without other methods than FedAvg, an empty figure.
    """
    complete = rows[(rows["state"] == "complete") & (rows["initializer"] == "previous")]
    table = complete.pivot_table(index=["month", "seed"], columns="label", values=f"{main}_next", sort=False)
    gaps = table.sub(table["fedavg"], axis=0).drop(columns="fedavg")
    lines = max(1, -(-gaps.shape[1] // COLUMNS))
    with paper():
        figure = Figure(figsize=(WIDTH, 0.6 + 1.7 * lines), layout="constrained")
        grid = figure.subplots(lines, COLUMNS, sharex=True, sharey=True, squeeze=False)
        for axes, label in zip(grid.flat, gaps, strict=False):
            seeds = gaps[label].dropna().groupby("month").agg(["mean", "min", "max"])
            color, months = GRAY if label in BOUNDS else PALETTE[0], seeds.index + 1
            axes.plot(months, seeds["mean"], marker="o", markersize=2.5, color=color)
            axes.fill_between(months, seeds["min"], seeds["max"], color=color, alpha=0.2, linewidth=0)
            axes.axhline(0, color="black", linewidth=0.7)
            axes.set_title(label)
            axes.set_xticks([2, 4, 6, 8, 10, 12])
        for axes in grid.flat[gaps.shape[1] :]:
            axes.set_visible(False)
        figure.supxlabel("month of 2013 that is predicted", fontsize=9)
        figure.supylabel(f"{Score(main).title} minus FedAvg's", fontsize=9)
        return png(figure)


def write(best: Path, folder: Path, overrides: list[str]) -> None:
    """Write the results of the runs of some settings into a folder."""
    main = "r2" if Params.read(best, overrides).experiment.task == "regression" else "auroc"
    rows = months(best, overrides, Path("runs"), main)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("months", rows), ("methods", methods(rows, main)), ("comparisons", comparisons(rows, main))):
        write_text(folder / f"{name}.csv", table.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
    write_bytes(folder / "months.png", picture(rows, main))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        recorded = pd.read_csv(Path(sys.argv[1]) / "months.csv")
        score = "r2" if "r2_next" in recorded else "auroc"
        write_bytes(Path(sys.argv[1]) / "months.png", picture(recorded, score))
    else:
        write(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
