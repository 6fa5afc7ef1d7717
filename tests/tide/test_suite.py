"""The suite that comes with the package."""

from math import prod
from pathlib import Path

import pytest

from fedtide.core import plugins
from fedtide.core.discovery.shipped import TIDE
from fedtide.settings.groups.tuning import SearchChoices
from fedtide.studies.tide.board import PUBLISHED, board, read_rows
from fedtide.studies.tide.method import Method
from fedtide.studies.tide.suite import REFERENCE_LINES, suite
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data

PROJECT = Path(__file__).parents[2]

METHODS = sorted(path.stem for path in (TIDE / "methods").glob("*.yaml"))


def test_it_is_the_one_of_the_project() -> None:
    assert TIDE.resolve() == PROJECT / "benchmarks" / "tide"
    assert list(suite())[:3] == ["months", "seasons", "weekends"]
    assert len(suite()) == 8


def test_models_that_clients_are_served_are_scored_and_a_constant_prediction_is_the_least() -> None:
    for world in suite().values():
        real = world.params.run().scenario.name == "calendar"
        metric = "validation_served_auroc_next" if real else "served_accuracy_mean"
        assert world.params.experiment.tune.metric == metric
        assert world.limits.trivial == (0.5 if real else 0.1)
        assert list(world.limits.timelines) == list(range(8001, 8006 if real else 8011))


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_every_method_fits_every_world_with_equal_trials_and_seeds(part: int) -> None:
    """Every second pair of a method and a world."""
    for place, name in enumerate(METHODS):
        method = Method.of(name)
        for world in list(suite().values())[(place + part) % 2 :: 2]:
            options = method.params(world).experiment
            assert (options.tune.trials, options.tune.seed) == (12, 8000)
            space = options.tune.space.items()
            sizes = {key: len(values.choices) for key, values in space if isinstance(values, SearchChoices)}
            assert sizes.pop("local.lr") == 6
            assert prod(sizes.values()) in (1, 2), "then the trials are the whole grid"
            assert set(world.limits.timelines) == set(options.compare.seeds)


@pytest.mark.slow
def test_the_data_and_a_timeline_are_the_frozen_ones() -> None:
    world = suite()["seasons"]
    settings = world.params.run(seed=8003)
    data = load_data(settings)
    assert data.digest == world.limits.data
    assert timeline_for(settings, data).digest == world.limits.timelines[8003]


def test_the_published_methods_are_those_of_the_suite_on_its_seeds() -> None:
    worlds, rows = suite(), read_rows(TIDE / PUBLISHED)
    known = {*METHODS, *plugins.names("algorithms"), *REFERENCE_LINES}
    assert {*board(rows, list(worlds.values())).methods.index} <= known
    for (method, world), group in rows.groupby(["method", "world"]):
        assert set(group["seed"]) == set(worlds[str(world)].limits.timelines), method
        assert group["score"].between(0, 1).all()
