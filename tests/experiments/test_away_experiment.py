"""The experiments with clients that are away: their scripts, on small worlds, and what their settings say."""

import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fedtide
from fedtide.settings.params import Params

FOLDER = Path(__file__).parents[2] / "experiments/away"
AWAY, SECONDS = FOLDER / "tuning/away.yaml", FOLDER / "seconds/seconds.yaml"
SMALL = ["data=digits", "scenario.num_clients=4", "local.epochs=1", "compare.seeds=[0,1]", "evaluation.every=1"]


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / f"{name}.py"))


@pytest.mark.slow
def test_memories_of_the_absent_end_where_everybody_takes_part(tmp_path: Path) -> None:
    chosen = ["scenario.rounds=60", "local.weight_decay=2.0", "compare.algorithms=[fedavg, mifa]"]
    chosen.append("participation.values=[0.9, 0.5, 0.8, 0.4, 0.6]")
    script("fixed_points")["main"](tmp_path, chosen)
    ends = pd.read_csv(tmp_path / "ends.csv", index_col="method")
    curves = pd.read_csv(tmp_path / "distances.csv").pivot(index="round", columns="method", values="distance")
    assert curves["mifa"].iloc[-1] < 1e-9 < 1e-3 < curves["fedavg"].iloc[-1]
    assert (ends["full_participation_from_optimum"] > 0).all()
    assert (tmp_path / "fixed_points.png").is_file()


def test_only_the_bound_has_full_participation() -> None:
    params = Params.read(AWAY)
    rules = {run.label: run.participation.name for run in params.grid()}
    assert {label for label, rule in rules.items() if rule == "all"} == {"full_participation"}


@pytest.mark.slow
def test_availabilities_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = [*SMALL, "scenario.rounds=3", "compare.algorithms=[fedavg, mifa, full_participation]"]
    away = script("availabilities")
    fedtide.compare(Params.read(AWAY, small), workers=1)
    away["main"](AWAY, tmp_path / "out", small)
    methods = pd.read_csv(tmp_path / "out/methods.csv")
    bound = methods["label"] == "full_participation"  # one run for all availabilities
    assert methods.loc[bound, ["availability", "complete"]].to_numpy().tolist() == [
        [n, 2] for n in away["AVAILABILITIES"]
    ]
    assert methods[~bound].set_index("label")["complete"].to_dict() == {"fedavg": 2, "mifa": 2}
    paired = pd.read_csv(tmp_path / "out/comparisons.csv")
    runs = pd.read_csv(tmp_path / "out/runs.csv").pivot(
        index=["availability", "seed"], columns="label", values="accuracy"
    )
    gap = (runs["mifa"] - runs["fedavg"]).mean()
    mine = paired[paired["score"] == "accuracy"].set_index("availability")["difference"]
    assert mine.to_dict() == pytest.approx({"stationary": gap, "mean": gap}, abs=1e-5)
    assert (tmp_path / "out/availabilities.png").is_file()


def test_methods_are_read_at_equal_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = [
        *(*SMALL, "participation.count=2", "scenario.rounds=4", "compare.algorithms=[fedavg, fedbuff]"),
        "algorithms.fedbuff={buffer: 2, with: {mode: {name: async, concurrency: 2}, participation: all}}",
    ]
    fedtide.compare(Params.read(SECONDS, small), workers=1)
    seconds = script("at_seconds")
    seconds["main"](SECONDS, tmp_path / "out", small)
    curves = pd.read_csv(tmp_path / "out/seconds.csv")
    ends = seconds["read"](SECONDS, small, Path("runs")).groupby("key")["elapsed"].max()
    assert curves["second"].max() == pytest.approx(ends.min(), rel=1e-5)
    assert curves.groupby(["label", "seed"]).size().eq(40).all()
    assert pd.read_csv(tmp_path / "out/methods.csv")["seeds"].tolist() == [2, 2]
