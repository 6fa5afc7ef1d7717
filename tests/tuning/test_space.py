"""What can be searched, and which settings a choice of values makes."""

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from fedtide.cli.stages import inputs
from fedtide.settings.params import Params
from fedtide.studies.tuning.space import Choice, Dimension, Space

Make = Callable[..., Params]
LEARNING_RATE = Dimension("local.lr", 1e-3, 1.0, log=True, integer=False)


def searched(make: Make, key: str, low: float, high: float, **values: Any) -> Space:
    return Space(make({"space": {key: {"low": low, "high": high}}}, **values))


def test_an_algorithm_brings_its_own_ranges_beside_that_of_the_learning_rate(params: Make) -> None:
    mu = Dimension("algorithm.mu", 1e-4, 1.0, log=True, integer=False)
    assert Space(params()).dimensions == (mu, LEARNING_RATE)
    assert Space(params(algorithm="fedensemble")).dimensions == (LEARNING_RATE,)


def test_a_given_space_replaces_the_default(params: Make) -> None:
    space = searched(params, "local.epochs", 1, 4)
    assert space.dimensions == (Dimension("local.epochs", 1, 4, log=False, integer=True),)
    amount = space.settings({"local.epochs": 3}).local.amount
    assert (amount, type(amount)) == (3, int)
    optional = searched(params, "local.clip", 0.5, 2)
    assert not optional.dimensions[0].integer
    assert optional.settings({"local.clip": 1.5}).local.clip == 1.5
    named = searched(params, "partition.alpha", 0.1, 1, partition="dirichlet_client")
    chosen = named.settings({"partition.alpha": 0.5}).partition
    assert (chosen.name, chosen.alpha) == ("dirichlet_client", 0.5)


def test_an_infinite_number_may_be_a_choice(params: Make) -> None:
    """Under its word, which settings take for the number."""
    for choices in ([10.0, math.inf], [10.0, "inf"]):
        space = Space(params({"space": {"initializer.similarity_scale": {"choices": choices}}}, initializer="dynamic"))
        assert [dimension.limits for dimension in space.dimensions] == [(10.0, "inf")]
        chosen = space.settings({"initializer.similarity_scale": "inf"})
        assert chosen.initializer.similarity_scale == math.inf  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("key", "choices"),
    [
        ("communication.budget.name", ("fix", "dynamic")),
        ("communication.budget.beta", (0.25, 1)),
        ("local.nesterov", (False, True)),
        ("local.clip", (None, 10.0)),
        ("local.epochs", (1, 8)),
        ("model.name", ("softmax_regression", "mlp")),
    ],
)
def test_choices_are_put_where_the_run_finds_them(params: Make, key: str, choices: tuple[Any, ...]) -> None:
    local = {"momentum": 0.9}
    space = Space(params({"space": {key: {"choices": list(choices)}}}, communication="intervals", local=local))
    assert space.dimensions == (Choice(key, choices),)
    for choice in choices:
        found: Any = space.settings({key: choice})
        for part in key.split("."):
            found = getattr(found, part)
        assert found == choice
        assert type(found) is type(choice) or isinstance(found, float)


def test_a_searched_exchange_keeps_what_the_file_and_the_label_set(params: Make) -> None:
    mine = {"name": "fedprox", "with": {"communication": {"portion": 0.5}}}
    budget = {"name": "dynamic", "beta": 0.75}
    file = params(
        {"space": {"communication.intervals": {"choices": ["a", "b-d"]},
                   "communication.budget.beta": {"low": 0.1, "high": 0.9}}},
        communication={"name": "intervals", "budget": budget}, algorithm="mine", algorithms={"mine": mine},
    )  # fmt: skip
    values = {"communication.intervals": "b-d", "communication.budget.beta": 0.5}
    tried: Any = Space(file).settings(values).communication
    assert (tried.intervals, tried.portion, tried.budget.name, tried.budget.beta) == ("b-d", 0.5, "dynamic", 0.5)
    written = Params(yaml.safe_load(yaml.safe_dump(Space(file).raw(values))))
    assert written.run().communication == tried
    assert written.run(algorithm="fedavg").communication == file.run(algorithm="fedavg").communication


def test_trials_have_the_seed_of_the_search_and_never_see_the_test_set(params: Make) -> None:
    trial = Space(params({"seed": 77}, seed=3, evaluation={"every": 2})).settings({})
    assert (trial.seed, trial.evaluation.splits, trial.evaluation.every) == (77, ("validation",), 2)


def test_values_are_put_below_the_label_and_override_it(params: Make) -> None:
    mine = {"name": "fedprox", "mu": 1.0, "weighting": "uniform", "with": {"local": {"lr": 0.5, "momentum": 0.9}}}
    file = params(algorithm={"name": "mine", "mu": 3.0}, algorithms={"mine": mine, "fedavg": {}})
    values = {"algorithm.mu": 0.25, "local.lr": 0.125}
    best = Params(Space(file).raw(values))

    run = best.run()
    assert (run.label, run.algorithm.name, run.algorithm.mu) == ("mine", "fedprox", 0.25)
    assert run.algorithm.weighting.name == "uniform"
    assert (run.local.lr, run.local.momentum) == (0.125, 0.9)
    assert best.run(algorithm="mine").algorithm.mu == 0.25
    assert best.run(algorithm="fedavg").local == file.run(algorithm="fedavg").local


def test_settings_of_links_are_searched_by_the_name_of_the_link(params: Make) -> None:
    ranges = {"uplink.clip.bound": {"low": 0.1, "high": 10}, "uplink.qsgd.levels": {"low": 1, "high": 255}}
    space = Space(params({"space": ranges}, uplink=["clip", {"name": "qsgd", "scope": "tensor"}]))
    clip, qsgd = space.settings({"uplink.clip.bound": 3.0, "uplink.qsgd.levels": 7}).uplink
    assert (clip.bound, clip.rate, qsgd.levels, qsgd.scope) == (3.0, 0.2, 7, "tensor")  # type: ignore[attr-defined]
    bound = {"uplink.clip.bound": 3.0}
    assert Params(space.raw(bound)).run().uplink == space.settings(bound).uplink


@given(mu=st.floats(1e-4, 1), lr=st.floats(1e-3, 1), steps=st.integers(1, 50))
@hypothesis(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_written_settings_are_those_that_were_tried(params: Make, mu: float, lr: float, steps: int) -> None:
    space = _three(params)
    values = {"algorithm.mu": mu, "local.lr": lr, "local.epochs": steps}
    tried = space.settings(values)
    assert (tried.algorithm.mu, tried.local.lr, tried.local.amount) == (mu, lr, steps)
    written = Params(yaml.safe_load(yaml.safe_dump(space.raw(values)))).run()
    changed = {"seed": tried.seed, "evaluation": tried.evaluation}
    assert written.model_copy(update=changed) == tried


@functools.cache
def _three(params: Make) -> Space:
    ranges = {"algorithm.mu": (1e-4, 1), "local.lr": (1e-3, 1), "local.epochs": (1, 50)}
    return Space(params({"space": {key: {"low": low, "high": high} for key, (low, high) in ranges.items()}}))


def test_code_of_every_choice_counts(params: Make, tmp_path: Path) -> None:
    def tuned(*choices: str) -> str:
        space = params({"space": {"model.name": {"choices": list(choices)}}})
        inputs(space, Space(space).extremes, tmp_path)
        found: str = json.loads((tmp_path / "search.json").read_text())["code"]
        return found

    space = Space(params({"space": {"model.name": {"choices": ["softmax_regression", "mlp"]}}}))
    assert [settings.model.name for settings in space.extremes] == ["softmax_regression", "mlp"]
    assert tuned("softmax_regression", "mlp") != tuned("softmax_regression", "cnn_5x5")
