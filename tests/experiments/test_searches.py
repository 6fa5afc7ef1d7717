"""The searches of the experiments: one budget and one range of learning rates for every method that is compared."""

import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedtide.settings.params import Params
from fedtide.studies.tuning.space import Space

ROOT = Path(__file__).parents[2]
SEARCH = runpy.run_path(str(ROOT / "experiments/search.py"))
FILES = {path.stem: path for path in ROOT.glob("experiments/*/*/*.yaml") if path.with_name("spaces.yaml").is_file()}
FILES.pop("spaces")
RESULTS = {
    folder: name
    for folder, name in {
        "flights_logistic": "flights",
        "flights_mlp": "flights",
        "flights_days": "days",
        "flights_minutes": "minutes",
        "away_softmax": "away",
        "away_mlp": "away",
        "away_seconds": "seconds",
        "personal_flights": "personal_flights",
        "personal_fmnist": "personal_fmnist",
    }.items()
    if (ROOT / "results" / folder / "best.yaml").is_file()
}


def commands(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = SEARCH["commands"](FILES[name], Path("out"), [])
    return found


def test_all_are_found() -> None:
    assert FILES.keys() == {"flights", "days", "minutes", "away", "seconds", "personal_flights", "personal_fmnist"}
    assert "flights_logistic" in RESULTS


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


@pytest.mark.parametrize("folder", RESULTS)
def test_what_was_found_is_the_whole_experiment(folder: str) -> None:
    """From the settings that the last search of a chain leaves behind."""
    wanted, params = yaml.safe_load((ROOT / "results" / folder / "best.yaml").read_text()), FILES[RESULTS[folder]]
    plan, left = SEARCH["spaces"](params), yaml.safe_load((ROOT / "results" / folder / "best.yaml").read_text())
    for key, value in plan["shorter"].items():
        _put(left, key.split("."), value)
    for label in plan.get("rates", {}):
        left["algorithms"][label]["with"]["local"].pop("lr")
    left["tune"]["space"], left["algorithm"] = {"local.lr": {"low": 0.1, "high": 1.0}}, {"name": "last"}
    assert SEARCH["restored"](params, left) == wanted
    assert len(Params.read(ROOT / "results" / folder / "best.yaml").grid()) > 0


def _put(settings: dict[str, Any], key: list[str], value: object) -> None:
    for name in key[:-1]:
        settings = settings[name]
    settings[key[-1]] = value
