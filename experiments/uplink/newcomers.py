"""What aggregation rules keep of newcomers, of returners and of attackers, and how well those who have come are served.

    export FEDTIDE_PLUGINS=experiments/uplink/plugins
    python experiments/uplink/newcomers.py experiments/uplink/settings/newcomers_fmnist.yaml results/newcomers_fmnist

trains what is missing of all rules, without attackers and with a fifth of the clients as attackers, and writes (further
arguments override settings)

* ``kept.csv``: by attack, rule and group, the kept share in a client's first rounds over that of the residents in the same
  rounds (mean and standard deviation over the seeds), see ``kept.py``,
* ``ages.csv``: the same by rounds since the arrival, without attackers,
* ``accuracy.csv``: accuracy in percent, of the global model at the end and of newcomers on the mean of all evaluations.
"""

import runpy
import sys
from pathlib import Path

import pandas as pd

import fedtide
from fedtide.core.storage.files import write_text
from fedtide.settings.params import Params

RELATIVE = runpy.run_path(str(Path(__file__).with_name("kept.py")))["relative"]

ATTACKS = {
    "none": "attack={name: none}",
    "sign_flip": "attack={name: sign_flip, factor: 2, share: 0.2}",
    "ipm": "attack={name: ipm, factor: 0.5, share: 0.2}",
    "alie": "attack={name: alie, z: 1, share: 0.2}",
}
FIRST = 5
"""Rounds since its arrival that count as a client's first."""


def main(file: Path, out: Path, overrides: list[str]) -> None:
    """Train, and write the tables."""
    kept, scores = {}, {}
    for attack, setting in ATTACKS.items():
        read = fedtide.compare(Params.read(file, [*overrides, setting]))
        kept[attack] = RELATIVE(read.clients, Path("runs"))
        history = read.history.dropna(subset=["test_accuracy"])
        run = ["label", "seed"]
        scores[attack] = 100 * pd.DataFrame(
            {
                "end": history.groupby(run)["test_accuracy"].last(),
                "newcomers": history.groupby(run)["client_accuracy_newcomers"].mean(),
                "stayers": history.groupby(run)["client_accuracy_stayers"].mean(),
            }
        )
    out.mkdir(parents=True, exist_ok=True)
    rows = pd.concat(kept, names=["attack"]).reset_index()
    ages = rows[(rows["attack"] == "none") & (rows["group"] != "Attackers")]
    _write(out / "ages.csv", ages.groupby(["label", "group", "age"])["kept"])
    first = rows[rows["age"] < FIRST].groupby(["attack", "label", "group", "seed"])["kept"].mean()
    _write(out / "kept.csv", first.groupby(["attack", "label", "group"]))
    accuracy = pd.concat(scores, names=["attack"]).groupby(["attack", "label"]).agg(["mean", "std"])
    accuracy.columns = [name if kind == "mean" else f"{name}_std" for name, kind in accuracy.columns]
    write_text(out / "accuracy.csv", accuracy.to_csv(float_format="%.1f"))


def _write(path: Path, groups: pd.core.groupby.SeriesGroupBy) -> None:
    write_text(path, groups.agg(["mean", "std", "size"]).to_csv(float_format="%.3f"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
