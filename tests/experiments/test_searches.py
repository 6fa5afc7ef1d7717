"""The searches of the experiments: one budget and one range of learning rates for every method that is compared."""

import runpy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fedtide.settings.params import Params
from fedtide.studies.tuning.space import Space

ROOT = Path(__file__).parents[2]
SEARCH = runpy.run_path(str(ROOT / "experiments/search.py"))
FILES = {path.stem: path for path in ROOT.glob("experiments/*/*/*.yaml") if path.with_name("spaces.yaml").is_file()}
FILES.pop("spaces")


def commands(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = SEARCH["commands"](FILES[name], Path("out"), [])
    return found


def test_all_are_found() -> None:
    assert FILES.keys() == {"flights", "days", "minutes", "away", "seconds", "personal_flights", "personal_fmnist"}


@pytest.mark.parametrize("name", FILES)
def test_every_compared_algorithm_is_searched(name: str) -> None:
    plan, experiment = SEARCH["spaces"](FILES[name]), Params.read(FILES[name]).experiment
    assert {*plan["spaces"], *plan.get("rates", {})} >= set(experiment.compare.algorithms)
    assert {*plan["spaces"]} <= {*experiment.algorithms, *experiment.initializers}
    assert experiment.tune.seed not in experiment.compare.seeds
    assert not experiment.tune.prune


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FILES)
def test_searches_follow_each_other_and_share_a_range_of_rates(name: str, part: int) -> None:
    """The ranges of every second search."""
    before, ranges = str(FILES[name]), set()
    for place, (label, words) in enumerate(commands(name).items()):
        assert words[words.index("--params") + 1] == before
        before = f"out/{label}/best.yaml"
        if place % 2 != part:
            continue
        params = Params.read(FILES[name], [word for flag, word in pairwise(words) if flag == "--set"])
        limits = {dimension.key: dimension.limits for dimension in Space(params).dimensions}
        assert limits.keys() == SEARCH["spaces"](FILES[name])["spaces"][label].keys()
        ranges |= {limits["local.lr"]} if "local.lr" in limits else set()
    assert ranges == {(0.01, 1.0)}


@pytest.mark.slow
def test_a_chain_of_searches_leaves_the_best_of_each(here: Path, script: Callable[..., str]) -> None:
    settings = yaml.safe_load(FILES["away"].read_text())
    settings["compare"]["algorithms"] = ["fedavg", "fedprox", "full_participation"]
    settings["tune"]["trials"] = 2
    ranges = {"low": 0.01, "high": 1.0, "log": True}
    plan = {
        "shorter": {"scenario.rounds": 2, "scenario.num_clients": 4, "evaluation.every": 1, "data": {"name": "digits"}},
        "rates": {"full_participation": "fedavg"},
        "spaces": {"fedavg": {"local.lr": ranges}, "fedprox": {"local.lr": ranges, "algorithm.mu": ranges}},
    }
    Path("away.yaml").write_text(yaml.safe_dump(settings))
    Path("spaces.yaml").write_text(yaml.safe_dump(plan))
    script("search.py", "away.yaml", "results/away", "local.steps=2")
    best = yaml.safe_load(Path("results/away/best.yaml").read_text())
    assert best["scenario"] == settings["scenario"]
    found = {}
    for label in plan["spaces"]:
        trials = pd.read_csv(f"results/away/trials/{label}.csv")
        assert len(trials) == 2
        found[label] = trials.loc[trials["value"].idxmax()]
    rates = {label: best["algorithms"][label]["with"]["local"]["lr"] for label in best["compare"]["algorithms"]}
    assert rates["fedavg"] == rates["full_participation"] == pytest.approx(found["fedavg"]["local.lr"])
    assert rates["fedprox"] == pytest.approx(found["fedprox"]["local.lr"])
