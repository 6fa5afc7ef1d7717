"""Settings files of the experiments: searches have the ranges that they say, populations return, bounds are the library's."""

from pathlib import Path
from typing import Any

import pytest

from fedtide.core import plugins
from fedtide.core.plugins import PluginSettings
from fedtide.settings.params import Params
from fedtide.studies.tuning.space import Choice, Space

ROOT = Path(__file__).parents[2] / "experiments"
FRONT = ROOT / "dynamicfl/tuning/front_cifar10.yaml"
FEDSSG = ROOT / "fedssg/tuning/fmnist.yaml"
FLIGHTS = ROOT / "flights/tuning/flights.yaml"
SEARCHED = ("fedssg", "feddyn", "feddc")


def test_every_pair_of_letters_and_budget_is_a_run_of_its_own() -> None:
    params = Params.read(FRONT)
    assert params.experiment.tune.cost == "kappa"
    assert params.experiment.tune.seed not in params.experiment.compare.seeds
    space, runs = Space(params), set[str]()
    letters, budgets, beta = space.dimensions
    assert isinstance(letters, Choice)
    assert {high for high, *_ in map(str, letters.limits)} == {*"abcdg"}
    assert budgets.limits == ("fix", "dynamic")
    assert (beta.key, *beta.limits) == ("communication.budget.beta", 0.1, 0.9)
    for pair in letters.limits:
        for name in budgets.limits:
            values = {letters.key: pair, budgets.key: name, beta.key: 0.25}
            communication: Any = space.settings(values).communication
            assert (communication.intervals, communication.budget.name, communication.budget.beta) == (pair, name, 0.25)
            runs.add(communication.model_dump_json())
    assert len(runs) == len(letters.limits) * len(budgets.limits)


@pytest.mark.parametrize("label", SEARCHED)
def test_alpha_alone_is_searched_in_the_algorithms_own_range_which_holds_its_default(label: str) -> None:
    params = Params.read(FEDSSG, [f"algorithm={label}"])
    (dimension,) = Space(params).dimensions
    assert (dimension.key, dimension.low, dimension.high, dimension.log) == ("algorithm.alpha", 1e-3, 1.0, True)
    assert not params.experiment.tune.prune
    assert params.experiment.tune.seed not in params.experiment.compare.seeds
    default = Space(Params.read(FEDSSG, [f"algorithm={label}", "tune.space={}"])).dimensions
    own = {each.key: each.limits for each in default}
    assert own.keys() == {"algorithm.alpha", "local.lr"}
    assert own["algorithm.alpha"] == (1e-3, 1.0)
    settings: PluginSettings = plugins.load("algorithms", label).Settings()
    assert 1e-3 < settings.alpha < 1.0  # type: ignore[attr-defined]


def test_searches_in_turn_collect_the_best_of_each_method() -> None:
    params = Params.read(FEDSSG)
    for label, alpha in zip(SEARCHED, (0.05, 0.01, 0.1), strict=True):
        space = Space(Params({**params.raw, "algorithm": label}))
        assert space.settings({"algorithm.alpha": alpha}).algorithm.alpha == alpha  # type: ignore[attr-defined]
        params = Params(space.raw({"algorithm.alpha": alpha}))
    runs = {run.label: run.algorithm for run in params.grid()}
    assert {label: runs[label].alpha for label in SEARCHED} == {"fedssg": 0.05, "feddyn": 0.01, "feddc": 0.1}  # type: ignore[attr-defined]
    assert runs.keys() == {"fedavg", *SEARCHED}


@pytest.mark.parametrize("name", ["flights/weekends/weekends", "baseball/years/years"])
def test_populations_return_in_every_run(name: str) -> None:
    params = Params.read(ROOT / f"{name}.yaml")
    chosen = params.experiment.compare
    assert params.remarks == []
    for label in chosen.algorithms:
        for initializer in chosen.initializers:
            settings = params.run(algorithm=label, initializer=initializer)
            assert (settings.scenario.name, settings.partition.name) == ("calendar", "natural")


def test_fedssg_counts_all_rounds_of_the_years() -> None:
    settings = Params.read(ROOT / "baseball/years/years.yaml").run(algorithm="fedssg")
    assert settings.algorithm.horizon == (2020 - 1901) * settings.scenario.rounds_per_period  # type: ignore[attr-defined]


def test_bounds_of_the_flights_are_those_of_the_library() -> None:
    """Pooled models average after every step, over all months or one."""
    params = Params.read(FLIGHTS)
    assert params.remarks == []
    assert params.run(algorithm="frozen").algorithm.name == "frozen"
    assert params.run(algorithm="frozen").local == params.run(algorithm="fedavg").local
    everything, month = (params.run(algorithm=label) for label in ("pooled", "pooled_period"))
    assert (everything.scenario.memory, month.scenario.memory) == (11, 0)  # type: ignore[attr-defined]
    assert everything.communication == month.communication
    assert everything.communication.intervals == "a"  # type: ignore[attr-defined]


def test_who_flies_today_can_be_drawn() -> None:
    """The same year in 360 rounds; methods have the same population and model as in the monthly comparison."""
    days, months = Params.read(ROOT / "flights/days/days.yaml").run(), Params.read(FLIGHTS).run()
    assert days.participation.name == "active"
    assert days.scenario.rounds_per_period == 30  # type: ignore[attr-defined]
    for part in ("data", "partition", "model", "local", "client_state", "validation"):
        assert getattr(days, part) == getattr(months, part), part
