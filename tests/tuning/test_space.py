"""What can be searched, and which settings a choice of values makes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from fedtide.errors import SettingsError
from fedtide.params import Params
from fedtide.tuning.space import Dimension, Space

Make = Callable[..., Params]
LEARNING_RATE = Dimension("local.lr", 1e-3, 1.0, log=True, integer=False)


def searched(make: Make, key: str, low: float, high: float, **values: Any) -> Space:
    return Space(make({"space": {key: {"low": low, "high": high}}}, **values))


def test_an_algorithm_without_tunable_settings_is_searched_over_the_learning_rate_alone(params: Make) -> None:
    assert Space(params(algorithm="fedavg")).dimensions == (LEARNING_RATE,)


def test_an_algorithm_brings_its_own_ranges(params: Make) -> None:
    mu = Dimension("algorithm.mu", 1e-4, 1.0, log=True, integer=False)
    assert Space(params()).dimensions == (mu, LEARNING_RATE)


def test_a_given_space_replaces_the_default(params: Make) -> None:
    space = searched(params, "local.amount", 1, 4)
    assert space.dimensions == (Dimension("local.amount", 1, 4, log=False, integer=True),)
    amount = space.settings({"local.amount": 3}).local.amount
    assert (amount, type(amount)) == (3, int)


def test_a_setting_that_may_be_absent_can_be_searched(params: Make) -> None:
    space = searched(params, "local.clip", 0.5, 2)
    assert not space.dimensions[0].integer
    assert space.settings({"local.clip": 1.5}).local.clip == 1.5


@pytest.mark.parametrize(
    ("key", "low", "high", "message"),
    [
        ("local.lrr", 0.1, 1, r"tune.space: unknown setting 'local.lrr'; did you mean 'lr'\?"),
        ("algorithm.nu", 0.1, 1, r"tune.space: unknown setting 'algorithm.nu'; did you mean 'mu'\?"),
        ("local.lr.x", 0.1, 1, "tune.space: unknown setting 'local.lr.x'"),
        ("local", 0.1, 1, "tune.space: local is not a number"),
        ("local.nesterov", 0, 1, "tune.space: local.nesterov is not a number"),
        ("model.name", 0, 1, "tune.space: model.name is not a number"),
        ("local.amount", 0.5, 2, "tune.space: local.amount is an integer, but its range is 0.5 to 2"),
        ("local.lr", -1, 1, "local.lr = -1.0: should be greater than 0"),
        ("local.momentum", 0, 2, "local.momentum = 2.0: should be less than 1"),
        ("seed", 0, 5, "tune.space: seed decides about luck"),
    ],
)
def test_what_cannot_be_searched_is_refused(params: Make, key: str, low: float, high: float, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refusal:
        searched(params, key, low, high)
    assert "\n" not in str(refusal.value)


def test_a_setting_that_the_initialiser_overrides_cannot_be_searched(params: Make) -> None:
    initialisers = {"previous": {"with": {"local": {"lr": 0.5}}}}
    with pytest.raises(SettingsError, match=r"local.lr cannot be searched: it stays 0.5"):
        Space(params(initialisers=initialisers))


def test_trials_have_the_seed_of_the_search_and_never_see_the_test_set(params: Make) -> None:
    trial = Space(params({"seed": 77}, seed=3, evaluation={"every": 2})).settings({})
    assert (trial.seed, trial.evaluation.splits, trial.evaluation.every) == (77, ("validation",), 2)


def test_values_are_put_below_the_label_and_win_over_what_it_says(params: Make) -> None:
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


def test_a_group_given_by_its_name_keeps_its_name(params: Make) -> None:
    space = searched(params, "partition.alpha", 0.1, 1, partition="dirichlet_client")
    chosen = space.settings({"partition.alpha": 0.5}).partition
    assert (chosen.name, chosen.alpha) == ("dirichlet_client", 0.5)


@given(mu=st.floats(1e-4, 1), lr=st.floats(1e-3, 1), steps=st.integers(1, 50))
@hypothesis(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_written_settings_are_those_that_were_tried(params: Make, mu: float, lr: float, steps: int) -> None:
    space = _three(params)
    values = {"algorithm.mu": mu, "local.lr": lr, "local.amount": steps}
    tried = space.settings(values)
    assert (tried.algorithm.mu, tried.local.lr, tried.local.amount) == (mu, lr, steps)
    written = Params(yaml.safe_load(yaml.safe_dump(space.raw(values)))).run()
    changed = {"seed": tried.seed, "evaluation": tried.evaluation}
    assert written.model_copy(update=changed) == tried


@functools.cache
def _three(params: Make) -> Space:
    ranges = {"algorithm.mu": (1e-4, 1), "local.lr": (1e-3, 1), "local.amount": (1, 50)}
    return Space(params({"space": {key: {"low": low, "high": high} for key, (low, high) in ranges.items()}}))
