"""The experiments with clients that are away: their scripts, on small worlds, and what their settings say."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import fedtide
from fedtide.settings.params import Params

Script = Callable[..., str]
AWAY, SECONDS = "experiments/away/tuning/away.yaml", "experiments/away/seconds/seconds.yaml"
SMALL = ["data=digits", "scenario.num_clients=4", "local.epochs=1", "compare.seeds=[0,1]", "evaluation.every=1"]


@pytest.mark.slow
def test_memories_of_the_absent_end_where_everybody_takes_part(here: Path, script: Script) -> None:
    chosen = ["scenario.rounds=60", "local.weight_decay=2.0", "compare.algorithms=[fedavg, mifa]"]
    chosen.append("participation.values=[0.9, 0.5, 0.8, 0.4, 0.6]")
    script("away/fixed_points.py", "out", *chosen)
    ends = pd.read_csv("out/ends.csv", index_col="method")
    curves = pd.read_csv("out/distances.csv").pivot(index="round", columns="method", values="distance")
    assert curves["mifa"].iloc[-1] < 1e-9 < 1e-3 < curves["fedavg"].iloc[-1]
    assert (ends["full_participation_from_optimum"] > 0).all()
    assert Path("out/fixed_points.png").is_file()


def test_only_the_bound_has_full_participation(here: Path) -> None:
    params = Params.read(AWAY)
    rules = {run.label: run.participation.name for run in params.grid()}
    assert {label for label, rule in rules.items() if rule == "all"} == {"full_participation"}


@pytest.mark.slow
def test_availabilities_are_compared(here: Path, script: Script) -> None:
    small = [*SMALL, "scenario.rounds=3", "compare.algorithms=[fedavg, mifa, full_participation]"]
    fedtide.compare(Params.read(AWAY, small), workers=1)
    script("away/availabilities.py", AWAY, "out", *small)
    methods = pd.read_csv("out/methods.csv")
    bound = methods["label"] == "full_participation"  # one run for all availabilities
    assert methods.loc[bound, ["availability", "complete"]].to_numpy().tolist() == [
        [n, 2] for n in ("stationary", "sine", "staircase", "interleaved")
    ]
    assert methods[~bound].set_index("label")["complete"].to_dict() == {"fedavg": 2, "mifa": 2}
    paired = pd.read_csv("out/comparisons.csv")
    runs = pd.read_csv("out/runs.csv").pivot(index=["availability", "seed"], columns="label", values="accuracy")
    gap = (runs["mifa"] - runs["fedavg"]).mean()
    mine = paired[paired["score"] == "accuracy"].set_index("availability")["difference"]
    assert mine.to_dict() == pytest.approx({"stationary": gap, "mean": gap}, abs=1e-5)
    assert Path("out/availabilities.png").is_file()


@pytest.mark.slow
def test_methods_are_read_at_equal_seconds(here: Path, script: Script) -> None:
    small = [
        *(*SMALL, "participation.count=2", "scenario.rounds=4", "compare.algorithms=[fedavg, fedbuff]"),
        "algorithms.fedbuff={buffer: 2, with: {mode: {name: async, concurrency: 2}, participation: all}}",
    ]
    history = fedtide.compare(Params.read(SECONDS, small), workers=1).history
    script("away/at_seconds.py", SECONDS, "out", *small)
    curves = pd.read_csv("out/seconds.csv")
    ends = history.groupby("key")["elapsed"].max()
    assert curves["second"].max() == pytest.approx(ends.min(), rel=1e-5)
    assert curves.groupby(["label", "seed"]).size().eq(40).all()
    assert pd.read_csv("out/methods.csv")["seeds"].tolist() == [2, 2]
