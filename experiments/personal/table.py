"""What each method serves clients and what it costs, from run directories.

    python experiments/personal/table.py results/personal_fmnist/best.yaml results/personal_fmnist [KEY=VALUE ...]

reads the settings, with overrides, and their complete runs in ``runs/``, prints tables and writes ``clients.csv``: per method,
mean, standard deviation over seeds and number of seeds of

* accuracies in percent, means over the evaluations after the first session: of all clients present, the worst tenth, newcomers,
  stayers, returners, those that have taken part (``known``) and those that have not (``unknown``), each with the model of its
  own, after local steps, or with the global one; and of the ``global`` model;
* ``gain`` over the global model in points, and the share of clients ``hurt`` by theirs, in percent;
* ``gradients`` on batches that all participants took in all rounds, in thousands, ``steps`` that a client takes on top before
  it uses the model, and megabytes ``up`` and ``down``;

and ``above.csv``, differences of client means and of newcomers to each of ``REFERENCES`` that is there, in points, paired over
seeds.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedtide.core.storage.files import write_text
from fedtide.records.files.client_scores import GAINS
from fedtide.records.frames import load
from fedtide.records.measures import statistics
from fedtide.report.comparison import run_directories
from fedtide.settings.groups.local import WORK
from fedtide.settings.params import Params

REFERENCES = ("fedavg", "fedavg_20", "fedavg_steps")
GROUPS = ("mean", "worst_decile", "newcomers", "stayers", "returners", "known", "unknown")


def measured(run: pd.DataFrame, settings: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a run from its history."""
    rows = run[run["session"] > run["session"].min()].dropna(axis="columns", how="all")
    model = next(kind for kind in ("finetuned", "served", "client") if f"{kind}_accuracy_mean" in rows)

    def mean(column: str) -> float:
        return 100 * float(rows[column].mean()) if column in rows else np.nan

    found = {name: mean(f"{model}_accuracy_{name}") for name in GROUPS}
    last = run.iloc[-1]
    alone = last["bytes_up"] == 0  # no global model is trained
    gains = GAINS.get(model, ("", ""))  # none of the global model over itself
    found |= {name: np.nan if alone else mean(column) for name, column in zip(("gain", "hurt"), gains, strict=True)}
    taken = run["gradients"] if "gradients" in run else pd.Series(np.nan, run.index)
    steps = float(next(settings[key] for unit in WORK if (key := f"local.{unit}") in settings))
    return found | {
        "global": np.nan if alone else mean("client_accuracy_mean"),
        "gradients": float((taken.fillna(steps) * run["completed"]).sum()) / 1e3,
        "steps": float(settings["evaluation.finetune_steps"]),
        "up": last["bytes_up"] / 1e6,
        "down": last["bytes_down"] / 1e6,
    }


def tables(params: Params, runs: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Figures by label, and paired differences by reference, figure and label."""
    read = load([folder for folder in run_directories(params, runs) if (folder / "summary.json").is_file()])
    done = read.runs[read.runs["state"] == "complete"]
    found = {
        (run.label, run.seed): measured(pd.read_csv(runs / run.key / "history.csv"), read.settings[run.key])
        for run in done.itertuples()
    }
    each = pd.DataFrame(found).T.rename_axis(["label", "seed"])
    table = each.groupby("label").agg(["mean", "std"])
    table[("seeds", "")] = each.groupby("label").size()
    pairs = {
        (reference, name): statistics.compare(each[name].unstack("label").dropna(axis=1), reference)
        for reference in REFERENCES
        if reference in each.index
        for name in ("mean", "newcomers")
    }
    above = pd.concat(pairs, names=["over", "of"])[["pairs", "difference", "low", "high", "p_holm"]]
    return table.sort_values(("mean", "mean"), ascending=False), above


def main(file: Path, out: Path, overrides: list[str]) -> None:
    """Write and print the tables."""
    table, above = tables(Params.read(file, overrides), Path("runs"))
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "clients.csv", table.to_csv(float_format="%.4f"))
    write_text(out / "above.csv", above.to_csv(float_format="%.3f"))
    shown = table.drop(columns="seeds", level=0)
    names = list(dict.fromkeys(shown.columns.get_level_values(0)))
    print("| " + " | ".join(["method", *names]) + " |")
    print("|" + "---|" * (len(names) + 1))
    for label, row in shown.iterrows():
        cells = [_cell(row[name, "mean"], row[name, "std"]) for name in names]
        print("| " + " | ".join([str(label), *cells]) + " |")
    print(above.to_string(float_format="%.2f"))


def _cell(mean: float, std: float) -> str:
    if np.isnan(mean):
        return ""
    return f"{mean:.1f} ± {std:.1f}" if std > 0.005 else f"{mean:.1f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
