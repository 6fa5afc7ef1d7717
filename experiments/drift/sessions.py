"""Initializers where populations return and concepts drift, at the starts of sessions or between them.

    python experiments/drift/sessions.py experiments/drift/sessions/sessions.yaml results/drift_sessions

gives every algorithm the best of four learning rates on another seed (``rates.csv``), runs the settings in every world below
and writes ``accuracy.csv``, in percent, mean and standard deviation over seeds, by world, algorithm and initializer:

* ``before``, ``dip``, ``rounds``: around the rounds where labels are swapped or back, as in ``records/measures/drifts.py``, but
  counted for everybody: a group that returns finds another concept although none of its devices has seen the change;
* ``first``: the first round of a session, of those from the fourth on; ``mean``: all rounds of these; ``final``: the last five.

Without drift the rounds are those of the first world. Repeated, it continues.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

import fedtide
from fedtide.core.storage.files import write_text
from fedtide.records.measures import drifts
from fedtide.settings.params import Params
from fedtide.settings.reading.overrides import apply_overrides

WORLDS = {"at starts": 20, "between": 25, "nothing drifts": None}  # round of the first change
RATES = (0.1, 0.3, 1.0, 3.0)
SEED = 1000  # of the trials
FIRST = 4  # session; the initializers that need stored models have them


def rounds(settings: dict[str, Any], start: int | None, runs: Path, *overrides: str) -> pd.DataFrame:
    """History of the runs in a world."""
    raw = yaml.safe_load(yaml.safe_dump(settings))
    apply_overrides(raw, ["drift={name: none}" if start is None else f"drift.start={start}", *overrides])
    return fedtide.compare(Params(raw), runs, workers=1, allow_failures=True).history


def rates(settings: dict[str, Any], runs: Path) -> pd.DataFrame:
    """Mean accuracy of every algorithm at every rate, drifting between the starts, initializer `previous`; 0 if it diverged."""
    rows = []
    for rate in RATES:
        trial = f"local.lr={rate}", f"compare.seeds=[{SEED}]", "compare.initializers=[previous]"
        for label, run in rounds(settings, WORLDS["between"], runs, *trial).groupby("label"):
            score = 100 * run.loc[run["session"] >= FIRST, "test_accuracy"].mean()
            rows.append((label, rate, score if run["state"].eq("complete").all() else 0.0))
    return pd.DataFrame(rows, columns=["label", "lr", "accuracy"])


def measures(run: pd.DataFrame, start: int, period: int) -> dict[str, float]:
    """What the tables hold of one run."""
    accuracy = 100 * run["test_accuracy"].to_numpy()
    since, session = np.arange(len(run)) - start, run["session"].to_numpy()
    found = drifts.means(drifts.events(accuracy / 100, (since >= 0) & (since % period == 0)))
    later, first = session >= FIRST, np.diff(session, prepend=0) > 0
    return {
        "before": 100 * found["before"],
        "dip": 100 * found["dip"],
        "rounds": found["rounds"],
        "recovered": 100 * found["recovered"],
        "first": accuracy[later & first].mean(),
        "mean": accuracy[later].mean(),
        "final": accuracy[-5:].mean(),
    }


def main(file: Path, out: Path, runs: Path = Path("runs")) -> None:
    """Run what is missing and write the tables."""
    settings = yaml.safe_load(file.read_text())
    tried = rates(settings, runs)
    for label, rate in tried.loc[tried.groupby("label")["accuracy"].idxmax()].set_index("label")["lr"].items():
        settings["algorithms"][label].setdefault("with", {})["local"] = {"lr": rate}
    rows = []
    for world, start in WORLDS.items():
        for key, run in rounds(settings, start, runs).groupby(["label", "initializer", "seed"]):
            found = measures(run, settings["drift"]["start"] if start is None else start, settings["drift"]["period"])
            rows.append({"world": world, **dict(zip(("label", "initializer", "seed"), key, strict=True)), **found})
    each = pd.DataFrame(rows).groupby(["world", "label", "initializer"], sort=False).agg(["mean", "std"])
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "rates.csv", tried.to_csv(index=False, float_format="%.5g"))
    write_text(out / "accuracy.csv", each.drop(columns="seed").to_csv(float_format="%.1f"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
