"""The scripts of the flights, on a small table of shops by months."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedtide
from fedtide.settings.params import Params

SETTINGS = "experiments/flights/tuning/flights.yaml"
DATA = "data={name: table, file: shops.csv, label: late, client: shop, time: date}"
SMALL = [
    *(DATA, "scenario.rounds_per_period=2", "partition.min_samples=1", "participation.count=9", "local.steps=2"),
    *("evaluation.every=2", "evaluation.clients_every=2", "engine.workers=1", "tracking.mlflow=false"),
]
LEFT = 3


@pytest.fixture
def shops(here: Path) -> Path:
    """Eight months of nine shops, three of which close after March."""
    rng, rows = np.random.default_rng(0), ["date,shop,price,late"]
    for month in range(1, 9):
        for shop in range(9 if month <= LEFT else 6):
            prices = rng.integers(0, 50, 20)
            late = np.where(prices + rng.integers(0, 30, 20) > 40, "yes", "no")
            rows += [
                f"2013-{month:02}-{1 + day:02},shop {shop},{prices[day]},{late[day]}" for day in range(len(prices))
            ]
    (here / "shops.csv").write_text("\n".join([*rows, ""]))
    return here


@pytest.mark.slow
def test_months_are_those_of_the_runs(shops: Path, script: Callable[..., str]) -> None:
    chosen = [*SMALL, "compare.algorithms=[fedavg, scaffold]", "compare.initializers=[previous, average]"]
    chosen += ["compare.seeds=[0, 1]", "algorithms.fedssg.horizon=16"]
    bounds = ["compare.algorithms=[pooled, pooled_period, frozen]", "compare.initializers=[previous]"]
    runs = [fedtide.compare(Params.read(SETTINGS, [*chosen, *more]), workers=1).history for more in ([], bounds)]
    script("flights/months.py", SETTINGS, "out", *chosen)
    history = pd.concat(runs)
    ends = history[history["round"] % 2 == 0].groupby(["label", "initializer", "seed"])
    scores = 100 * ends["test_auroc_next"].mean()
    methods = pd.read_csv("out/methods.csv").set_index(["label", "initializer"])
    assert methods["complete"].to_dict() == dict.fromkeys(scores.index.droplevel("seed"), 2)
    wanted = scores.groupby(["label", "initializer"]).mean()
    assert (100 * methods["auroc_next"]).to_dict() == pytest.approx(wanted.to_dict(), abs=1e-3)
    found = pd.read_csv("out/comparisons.csv").set_index(["score", "family", "method"])["difference"]
    gap = scores["scaffold", "previous"].mean() - scores["fedavg", "previous"].mean()
    assert 100 * found["auroc_next", "algorithms", "scaffold"] == pytest.approx(gap, abs=1e-3)
    gap = wanted["fedavg", "average"] - wanted["fedavg", "previous"]
    assert 100 * found["auroc_next", "initializers of fedavg", "average"] == pytest.approx(gap, abs=1e-3)
    assert len(pd.read_csv("out/months.csv")) == 8 * 2 * (2 * 2 + 3)
    assert Path("out/months.png").is_file()


@pytest.mark.slow
def test_contributions_are_those_of_shops_that_close_that_stay_and_that_attack(
    shops: Path, script: Callable[..., str]
) -> None:
    printed = script("contribution/flights.py", "out", *SMALL, "attack.number=2", "evaluation.metrics=[]")
    found = pd.read_csv("out/contribution.csv")
    assert sorted(found["client"]) == list(range(9))
    counts = dict(line.split() for line in printed.splitlines()[1:4])
    assert counts["attack"] == "2"
    assert int(counts["leave"]) + int(counts["stay"]) == 7
    assert 1 <= int(counts["leave"]) <= LEFT
    months = found["client"].map(lambda client: 8 if client < 6 else LEFT)
    correlation = months.corr(found["loss"], method="spearman")
    assert f"correlation of months present and loss: {correlation:.2f}" in printed
