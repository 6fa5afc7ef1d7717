"""FedCCFA's protocol on Fashion-MNIST: two populations, two Dirichlet parameters, four kinds of drift, 200 rounds.

    python experiments/drift/protocol.py results/drift_fmnist/best.yaml results/drift_fmnist_protocol [KEY=VALUE ...]

takes methods, model and learning rates from the settings, with overrides, trains what is missing and writes ``accuracy.csv``:
the mean over clients of the accuracy of the model that each is served, under its own concept, after the last round, in percent
(mean, standard deviation and number of runs that are complete), and ``above.csv``: differences to FedAvg in points, paired over
seeds, in every world that ends under drift and in their mean.
"""

import math
import runpy
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

import fedtide
from fedtide.core.storage.files import write_text
from fedtide.records.measures import statistics
from fedtide.settings.params import Params

WORLD = ["population", "alpha", "drift"]
REFERENCE = "fedavg"
accuracy = runpy.run_path(str(Path(__file__).with_name("search.py")))["accuracy"]
POPULATIONS: dict[str, list[str]] = {
    "20 clients": [],
    "100 clients, 20 drawn": [
        "scenario.num_clients=100",
        "data.samples=10000",
        "participation={name: fixed, fraction: 0.2}",
    ],
}
GROUPS: dict[str, Any] = {
    "modulus": 10,
    "bounds": [3, 6, 10],
    "concepts": [{"swap": [[1, 2]]}, {"swap": [[3, 4]]}, {"swap": [[5, 6]]}],
}
SEEDS = {"sudden": [0, 1, 2], "incremental": [0, 1, 2]}
"""Of the worlds that end under drift; the others have seed 0."""
SHARED = [
    "scenario.rounds=200",
    "algorithms.fedccfa.align_from=20",
    "evaluation.every=20",
    "evaluation.clients_every=20",
]


def drifts(rounds: int) -> dict[str, dict[str, Any]]:
    """Kinds of drift, from the middle of the run on."""
    start, quarter = rounds // 2, rounds // 4
    return {
        "none": {"name": "none"},
        "sudden": {"name": "sudden", "start": start, **GROUPS},
        "incremental": {"name": "staggered", "start": start, "stagger": max(1, rounds // 20), **GROUPS},
        "recurrent": {"name": "window", "start": start, "until": start + quarter, **GROUPS},
    }


def main(file: Path, out: Path, overrides: list[str]) -> None:
    """Train, and write the table."""
    rows = []
    kinds = drifts(int(Params.read(file, [*SHARED, *overrides]).raw["scenario"]["rounds"]))
    for population, alpha, kind in product(POPULATIONS, (0.1, 0.5), kinds):
        world = [f"partition.alpha={alpha}", f"drift={kinds[kind]}", f"compare.seeds={SEEDS.get(kind, [0])}"]
        params = Params.read(file, [*POPULATIONS[population], *world, *SHARED, *overrides])
        history = fedtide.compare(params).history
        rows += [
            {
                "population": population,
                "alpha": alpha,
                "drift": kind,
                "label": label,
                "seed": seed,
                "accuracy": 100 * accuracy(run).iloc[-1] if (run["state"] == "complete").all() else math.nan,
            }
            for (label, seed), run in history.groupby(["label", "seed"])
        ]
    found = pd.DataFrame(rows)
    out.mkdir(parents=True, exist_ok=True)
    table = found.groupby([*WORLD, "label"], sort=False)["accuracy"].agg(["mean", "std", "count"])
    write_text(out / "accuracy.csv", table.to_csv(float_format="%.2f"))
    write_text(out / "above.csv", above(found[found["drift"].isin(SEEDS)]).to_csv(float_format="%.2f"))


def above(found: pd.DataFrame) -> pd.DataFrame:
    """Differences to FedAvg in worlds with the same seeds, and, first, of the means over them."""
    seeds = found.pivot(index=[*WORLD, "seed"], columns="label", values="accuracy")
    means = pd.DataFrame({label: rows.unstack("seed").mean(skipna=False) for label, rows in seeds.items()})
    pairs = {("all", "", "all"): means} | dict(iter(seeds.groupby(WORLD)))
    table = pd.concat(
        {world: statistics.compare(each, REFERENCE) for world, each in pairs.items()}, names=[*WORLD, "label"]
    )
    return table[["pairs", "difference", "low", "high"]]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
