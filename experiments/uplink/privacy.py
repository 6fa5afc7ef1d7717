"""Accuracy over epsilon: Poisson samples, uniform cohorts, and cyclic participation; independent and coupled noise.

    python experiments/uplink/privacy.py experiments/uplink/settings/privacy_flights.yaml results/privacy_flights

trains what is missing and writes ``accuracy.csv``: by mechanism and largest epsilon, the main score at the end in percent (mean
and standard deviation over the seeds) and the epsilon that a client spends at the median. Further arguments override settings.
"""

import sys
from pathlib import Path

import pandas as pd
import yaml

import fedtide
from fedtide.core.storage.files import write_text
from fedtide.settings.params import Params

EPSILONS = (2.0, 4.0, 8.0, 16.0)
TURNS = {"name": "least_recently_selected", "count": 100}
"""Cohorts of the settings' size in which a client comes again after as many rounds as possible."""
METHODS: dict[str, tuple[str, dict[str, object] | None]] = {
    "poisson": ("independent", {"name": "bernoulli"}),
    "uniform": ("independent", None),
    "tree": ("tree", None),
    "cyclic": ("independent", TURNS),
    "cyclic_banded": ("banded", TURNS),
}
"""Mechanism, and participation if it is not that of the settings: there some client is drawn in consecutive rounds, and
``banded`` is ``independent``."""
SHARE = {"flights": 0.05, "fashion_mnist": 0.1}
"""Of the clients present that Poisson samples take: about as many as the cohorts of the settings have."""


def main(file: Path, out: Path, overrides: list[str]) -> None:
    """Train, and write the table."""
    raw = yaml.safe_load(file.read_text())
    labels = {"none": raw["algorithms"]["fedavg"]}
    poisson = {"probability": SHARE[raw["data"]["name"]]}
    for name, (mechanism, participation) in METHODS.items():
        for epsilon in EPSILONS:
            chosen = {"uplink": [*raw["uplink"], {"name": "noise", "epsilon": epsilon, "mechanism": mechanism}]}
            if participation:
                chosen["participation"] = {**participation, **(poisson if name == "poisson" else {})}
            labels[f"{name}_eps{epsilon:g}"] = {"name": "fedavg", "weighting": "uniform", "with": chosen}
    raw["algorithms"] = {**labels, "none": {"name": "fedavg", **labels["none"]}}
    raw["compare"]["algorithms"] = list(labels)
    read = fedtide.compare(Params.read(raw, overrides))
    score = "test_auroc" if "test_auroc" in read.history else "test_accuracy"
    history = read.history.dropna(subset=[score])
    end = 100 * history.groupby(["label", "seed"])[score].last()
    spent = read.privacy.groupby(["label", "seed"])["epsilon"].median() if len(read.privacy) else pd.Series(dtype=float)
    table = end.groupby("label").agg(["mean", "std", "size"]).reindex(list(labels))
    table["median_epsilon"] = spent.groupby("label").mean().reindex(table.index)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "accuracy.csv", table.to_csv(float_format="%.3f"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
