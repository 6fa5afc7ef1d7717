"""What methods leave behind of an erased client, from run directories.

    python experiments/erasure/table.py experiments/erasure/fmnist/erasure_fmnist.yaml results/erasure_fmnist [KEY=VALUE ...]

reads the settings, with overrides, and their complete runs in ``runs/``, and writes ``erased.csv``: per method and initializer,
mean, standard deviation over seeds and number of seeds of

* ``step``: memory left right after the request;
* ``end_of_session`` and ``returning``: excess in nats at the end of the session of the request, and at the start of the session
  after the next one, in which the client's group returns, before it is trained;
* ``without_erasure``: the same at that start in the run that erases nothing;
* ``gap``: distance to the counterfactual at the end of the run, relative to that of the run that erases nothing;
* ``retained``: accuracy of the retained clients minus that of the counterfactual, at the end of the session of the request, in
  points;
* ``auc``, ``auc_exact``: membership inference at that time, on the model and on the counterfactual.
"""

import sys
from pathlib import Path

import pandas as pd

from fedtide.core.storage.files import write_text
from fedtide.records.frames import load
from fedtide.report.comparison import run_directories
from fedtide.settings.params import Params


def measured(run: pd.DataFrame) -> dict[str, float]:
    """The figures of a run from its history."""
    at = run[run["erased"] > 0].index[0]
    session = run["session"].loc[at]
    ended = run[run["session"] == session].iloc[-1]
    returning = run[(run["session"] == session + 2) & run["erased_excess_start"].notna()].iloc[0]
    return {
        "step": run["erased_memory_left_step"].loc[at],
        "end_of_session": ended["erased_excess"],
        "returning": returning["erased_excess_start"],
        "gap": run["erased_gap_left"].iloc[-1],
        "retained": 100 * ended["erased_retained_change"],
        "auc": ended["erased_auc"],
        "auc_exact": ended["erased_auc_counterfactual"],
    }


def table(params: Params, runs: Path) -> pd.DataFrame:
    """Figures by initializer and label."""
    done = load([folder for folder in run_directories(params, runs) if (folder / "summary.json").is_file()]).runs
    done = done[done["state"] == "complete"]
    found = {
        (run.initializer, run.label, run.seed): measured(pd.read_csv(runs / run.key / "history.csv"))
        for run in done.itertuples()
    }
    each = pd.DataFrame(found).T.rename_axis(["initializer", "label", "seed"])
    unerased = each.xs("continue", level="label")["returning"]
    each["without_erasure"] = [unerased[initializer, seed] for initializer, _, seed in each.index]
    figures = each.groupby(["initializer", "label"], sort=False).agg(["mean", "std"])
    figures[("seeds", "")] = each.groupby(["initializer", "label"]).size()
    return figures


def main(file: Path, out: Path, overrides: list[str]) -> None:
    """Write and print the table."""
    found = table(Params.read(file, overrides), Path("runs"))
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "erased.csv", found.to_csv(float_format="%.4f"))
    print(found.xs("mean", axis=1, level=1).round(2).to_string())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
