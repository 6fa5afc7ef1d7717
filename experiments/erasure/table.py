"""What methods leave behind of erased clients, from run directories.

    python experiments/erasure/table.py experiments/erasure/fmnist/erasure_fmnist.yaml results/erasure_fmnist 7 [KEY=VALUE ...]

reads the settings, with overrides, and their complete runs in ``runs/``. ``erased.csv`` has per method and initializer the
mean, standard deviation over seeds and number of seeds of

* ``step``: memory left right after the request;
* ``end_of_session``: excess in nats at the end of the session of the request;
* ``returning``: the same at the start of session 7, before it is trained, and ``without_erasure``, in the run that erases
  nothing;
* ``gap``: distance to the counterfactual at the end of the run, relative to that of the run that erases nothing;
* ``retained``: accuracy of the retained clients minus that of the counterfactual, at the end of the session of the request, in
  points;
* ``auc``, ``auc_exact``: membership inference at that time, on the model and on the counterfactual;
* ``gradients``, ``megabytes``: batches that the request takes, and what is stored for it.

``sessions.csv`` has the excess at the start and at the end of every session from the request on.
"""

import sys
from pathlib import Path

import pandas as pd

from fedtide.core.storage.files import write_text
from fedtide.records.frames import load
from fedtide.report.comparison import run_directories
from fedtide.settings.params import Params


def measured(run: pd.DataFrame, session_of_return: int) -> dict[str, float]:
    """The figures of a run from its history."""
    at = run[run["erased"] > 0].index[0]
    session = run["session"].loc[at]
    ended = run[run["session"] == session].iloc[-1]
    returning = run[(run["session"] == session_of_return) & run["erased_excess_start"].notna()].iloc[0]
    return {
        "step": run["erased_memory_left_step"].loc[at],
        "end_of_session": ended["erased_excess"],
        "returning": returning["erased_excess_start"],
        "gap": run["erased_gap_left"].iloc[-1],
        "retained": 100 * ended["erased_retained_change"],
        "auc": ended["erased_auc"],
        "auc_exact": ended["erased_auc_counterfactual"],
        "gradients": run["erase_gradients_retained"].iloc[-1] + run["erase_gradients_erased"].iloc[-1],
        "megabytes": run["erase_stored"].iloc[-1] / 1e6,
    }


def by_session(run: pd.DataFrame) -> pd.DataFrame:
    """Excess at the start and at the end of every session from the request on."""
    later = run[run["erased"] > 0].groupby("session")
    return pd.DataFrame({"start": later["erased_excess_start"].first(), "end": later["erased_excess"].last()})


def histories(params: Params, runs: Path) -> dict[tuple[str, str, int], pd.DataFrame]:
    """Histories of complete runs, by initializer, label and seed."""
    done = load([folder for folder in run_directories(params, runs) if (folder / "summary.json").is_file()]).runs
    complete = done[done["state"] == "complete"].itertuples()
    return {(run.initializer, run.label, run.seed): pd.read_csv(runs / run.key / "history.csv") for run in complete}


def main(file: Path, out: Path, session: int, overrides: list[str]) -> None:
    """Write the tables, and print the first one's means."""
    names = ["initializer", "label", "seed"]
    found = histories(Params.read(file, overrides), Path("runs"))
    each = pd.DataFrame({key: measured(run, session) for key, run in found.items()}).T.rename_axis(names)
    unerased = each.xs("continue", level="label")["returning"]
    each["without_erasure"] = [unerased.get((initializer, seed), float("nan")) for initializer, _, seed in each.index]
    figures = each.groupby(names[:2], sort=False).agg(["mean", "std"])
    figures[("seeds", "")] = each.groupby(names[:2]).size()
    sessions = pd.concat({key: by_session(run) for key, run in found.items()}, names=names)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "erased.csv", figures.to_csv(float_format="%.4f"))
    means = sessions.groupby([*names[:2], "session"], sort=False).agg(["mean", "std"])
    write_text(out / "sessions.csv", means.to_csv(float_format="%.4f"))
    print(figures.xs("mean", axis=1, level=1).round(2).to_string())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
