"""The shipped search: the same range and budget for each method, results that add up to one settings file."""

from pathlib import Path

import pytest

from fedtide.core import plugins
from fedtide.core.plugins import PluginSettings
from fedtide.settings.params import Params
from fedtide.studies.tuning.space import Space

FILE = Path(__file__).parents[2] / "experiments/fedssg/tuning/fmnist.yaml"
SEARCHED = ("fedssg", "feddyn", "feddc")


@pytest.mark.parametrize("label", SEARCHED)
def test_alpha_alone_is_searched_in_one_range(label: str) -> None:
    params = Params.read(FILE, [f"algorithm={label}"])
    (dimension,) = Space(params).dimensions
    assert (dimension.key, dimension.low, dimension.high, dimension.log) == ("algorithm.alpha", 1e-3, 1.0, True)
    assert not params.experiment.tune.prune
    assert params.experiment.tune.seed not in params.experiment.compare.seeds


@pytest.mark.parametrize("label", SEARCHED)
def test_the_range_is_the_algorithms_own_and_holds_its_default(label: str) -> None:
    found = {
        dimension.key: dimension
        for dimension in Space(Params.read(FILE, [f"algorithm={label}", "tune.space={}"])).dimensions
    }
    assert found.keys() == {"algorithm.alpha", "local.lr"}
    own = found["algorithm.alpha"]
    assert (own.low, own.high) == (1e-3, 1.0)
    settings: PluginSettings = plugins.load("algorithms", label).Settings()
    assert own.low < settings.alpha < own.high  # type: ignore[attr-defined]


def test_searches_in_turn_collect_the_best_of_each_method() -> None:
    params = Params.read(FILE)
    for label, alpha in zip(SEARCHED, (0.05, 0.01, 0.1), strict=True):
        space = Space(Params({**params.raw, "algorithm": label}))
        assert space.settings({"algorithm.alpha": alpha}).algorithm.alpha == alpha  # type: ignore[attr-defined]
        params = Params(space.raw({"algorithm.alpha": alpha}))
    runs = {run.label: run.algorithm for run in params.grid()}
    assert {label: runs[label].alpha for label in SEARCHED} == {"fedssg": 0.05, "feddyn": 0.01, "feddc": 0.1}  # type: ignore[attr-defined]
    assert runs.keys() == {"fedavg", *SEARCHED}


def test_a_label_of_other_name_and_its_weighting_can_be_searched() -> None:
    entry = "algorithms.feddisco={name: feddyn, weighting: {name: feddisco}}"
    ranges = "tune.space={algorithm.alpha: {low: 0.01, high: 0.1}, algorithm.weighting.a: {low: 0.1, high: 0.9}}"
    space = Space(Params.read(FILE, [entry, "algorithm=feddisco", ranges]))
    found = space.settings({"algorithm.alpha": 0.02, "algorithm.weighting.a": 0.3})
    assert (found.label, found.algorithm.name) == ("feddisco", "feddyn")
    assert (found.algorithm.alpha, found.algorithm.weighting.a) == (0.02, 0.3)  # type: ignore[attr-defined]
