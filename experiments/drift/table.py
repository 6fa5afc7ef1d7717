"""Mean accuracy of clients before, under and after a drift that lasts for a while, by method, from run directories.

``python experiments/drift/table.py RUNS OUT`` writes ``OUT/accuracy.csv``: the mean over clients of the accuracy of the model
that each is served, under its own concept, in percent; mean and standard deviation over the seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

import fedtide

SPANS = {"before": (16, 20), "under": (21, 40), "end of it": (36, 40), "after": (41, 45), "end": (56, 60)}
"""First and last rounds of the means."""


def accuracy(run: pd.DataFrame) -> pd.Series[float]:
    """Means over the spans of one run; that of the models served, where the method has any."""
    served = run.get("served_accuracy_mean", run["client_accuracy_mean"]).fillna(run["client_accuracy_mean"])
    rounds = served.set_axis(run["round"])
    return pd.Series({name: 100 * rounds.loc[first:last].mean() for name, (first, last) in SPANS.items()})


def main(runs: Path, out: Path) -> None:
    """Write the table."""
    history = fedtide.load(runs).history
    found = (
        history.groupby(["label", "seed"]).apply(accuracy, include_groups=False).groupby("label").agg(["mean", "std"])
    )
    out.mkdir(parents=True, exist_ok=True)
    found.sort_values(("under", "mean"), ascending=False).round(1).to_csv(out / "accuracy.csv")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
