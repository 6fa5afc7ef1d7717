"""Mean accuracy of clients before, under and after a drift that lasts for a while, by method, from run directories.

    python experiments/drift/table.py results/drift_digits/params.yaml results/drift_digits [KEY=VALUE ...]

reads the settings, with overrides, and their complete runs in ``runs/`` and writes ``accuracy.csv``, the mean over clients of
the accuracy of the model that each is served, under its own concept, in percent (mean, standard deviation and number of seeds),
``above.csv``, differences to FedAvg in points, paired over seeds, and ``curves.csv``, means by round.
"""

import runpy
import sys
from pathlib import Path

import pandas as pd

from fedtide.core.storage.files import write_text
from fedtide.records.frames import load
from fedtide.records.measures import statistics
from fedtide.report.comparison import run_directories
from fedtide.settings.params import Params

accuracy = runpy.run_path(str(Path(__file__).with_name("search.py")))["accuracy"]
REFERENCE = "fedavg"


def spans(params: Params) -> dict[str, tuple[int, int]]:
    """First and last rounds of the means: of five rounds, and of the whole drift; ``after`` where it ends."""
    drift, end = params.raw["drift"], int(params.raw["scenario"]["rounds"])
    start, until = int(drift["start"]), int(drift.get("until", end))
    after = {"after": (until + 1, until + 5), "end": (end - 4, end)} if until < end else {}
    return {"before": (start - 4, start), "under": (start + 1, until), "end of it": (until - 4, until), **after}


def main(file: Path, out: Path, overrides: list[str]) -> None:
    """Write the tables."""
    params = Params.read(file, overrides)
    read = load([folder for folder in run_directories(params, Path("runs")) if (folder / "summary.json").is_file()])
    done = read.history[read.history["state"] == "complete"]
    by_round = pd.DataFrame({key: 100 * accuracy(run) for key, run in done.groupby(["label", "seed"])})
    by_round.columns.names = ["label", "seed"]
    means = pd.DataFrame({name: by_round.loc[first:last].mean() for name, (first, last) in spans(params).items()})
    out.mkdir(parents=True, exist_ok=True)
    table = means.groupby("label").agg(["mean", "std"])
    table[("seeds", "")] = means.groupby("label").size()
    table = table.sort_values(("under", "mean"), ascending=False)
    write_text(out / "accuracy.csv", table.to_csv(float_format="%.1f"))
    pairs = {name: statistics.compare(values.unstack("label"), REFERENCE) for name, values in means.items()}
    above = pd.concat(pairs, names=["span"])[["pairs", "difference", "low", "high", "p_holm"]]
    write_text(out / "above.csv", above.to_csv(float_format="%.3g"))
    each = by_round.T.groupby("label").mean().T.melt(ignore_index=False, var_name="label", value_name="mean")
    write_text(out / "curves.csv", each.reset_index().to_csv(index=False, float_format="%.2f"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
