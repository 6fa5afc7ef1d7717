"""The shipped search over DynamicFL's letters and budgets."""

from pathlib import Path
from typing import Any

from fedtide.settings.params import Params
from fedtide.studies.tuning.space import Choice, Space

FILE = Path(__file__).parents[2] / "experiments/dynamicfl/tuning/front_cifar10.yaml"


def test_it_searches_pairs_of_letters_and_budgets_in_the_published_world() -> None:
    params = Params.read(FILE)
    assert (params.experiment.tune.cost, params.experiment.tune.seed in params.experiment.compare.seeds) == (
        "kappa",
        False,
    )
    letters, budgets, beta = Space(params).dimensions
    assert isinstance(letters, Choice)
    assert {high for high, *_ in map(str, letters.limits)} == {*"abcdg"}
    assert budgets.limits == ("fix", "dynamic")
    assert (beta.key, *beta.limits) == ("communication.budget.beta", 0.1, 0.9)


def test_every_choice_is_a_run_of_its_own() -> None:
    space = Space(Params.read(FILE))
    letters, budgets, _ = space.dimensions
    runs: set[str] = set()
    for pair in letters.limits:
        for name in budgets.limits:
            values = {
                "communication.intervals": pair,
                "communication.budget.name": name,
                "communication.budget.beta": 0.25,
            }
            communication: Any = space.settings(values).communication
            assert (communication.intervals, communication.budget.name, communication.budget.beta) == (pair, name, 0.25)
            runs.add(communication.model_dump_json())
    assert len(runs) == len(letters.limits) * len(budgets.limits)
