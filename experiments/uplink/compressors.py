"""What compression saves and costs: accuracy over bytes and joules, with clients that come and go and with clients that stay.

    python experiments/uplink/compressors.py experiments/uplink/settings/compressors_fmnist.yaml results/compressors_fmnist

trains what is missing and writes ``curves.csv`` (score by round, megabytes sent by clients, joules; means over the seeds) and
``table.csv``: the main score at the end, megabytes, joules, megabytes until the score of the uncompressed run less one point,
and the lengths of the errors that left with their clients, summed (means and standard deviations over the seeds). Further
arguments override settings.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import fedtide
from fedtide.core.storage.files import write_text
from fedtide.records.run_directory import RunDirectory, read_json
from fedtide.report.comparison import run_directories
from fedtide.settings.params import Params

REFERENCE = "none"


def main(file: Path, out: Path, overrides: list[str]) -> None:
    """Train, and write the tables."""
    params = Params.read(file, overrides)
    fedtide.compare(params)
    curves = pd.concat([curve(path) for path in run_directories(params, Path("runs"))])
    run = ["label", "seed"]
    last = curves.groupby(run).last()
    enough = last.loc[REFERENCE, "score"] - 0.01
    reached = curves[curves["score"] >= curves["seed"].map(enough)].groupby(run)["megabytes"].first()
    rows = last[["score", "megabytes", "joules", "lost"]].assign(until=reached.reindex(last.index))
    rows["score"] *= 100
    table = rows.groupby("label").agg(["mean", "std"])
    table.columns = [name if kind == "mean" else f"{name}_std" for name, kind in table.columns]
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "table.csv", table.assign(seeds=rows.groupby("label").size()).to_csv(float_format="%.4g"))
    means = curves.groupby(["label", "round"])[["score", "megabytes", "joules"]].mean()
    write_text(out / "curves.csv", means.to_csv(float_format="%.5g"))


def curve(folder: Path) -> pd.DataFrame:
    """The evaluated rounds of a run."""
    directory, settings = RunDirectory(folder), read_json(folder / "settings.json") or {}
    history = pd.read_csv(directory.path / "history.csv")
    history["joules"] = history.get("energy", pd.Series(0.0, history.index)).cumsum()
    history["lost"] = history.get("error_lost", pd.Series(0.0, history.index)).fillna(0.0).cumsum()
    score = next(name for name in ("test_auroc", "test_accuracy") if name in history)
    found = history.assign(score=history[score], megabytes=history["bytes_up"] / 1e6).dropna(subset=["score"])
    return found[["round", "score", "megabytes", "joules", "lost"]].assign(
        label=settings["label"], seed=np.int64(settings["seed"])
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
