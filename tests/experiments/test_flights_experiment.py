"""The settings of the flights: every method is searched, with one budget, on January to March; the bounds are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fedtide.federation.schedules import learning_rate
from fedtide.settings.params import Params
from fedtide.tuning.space import Space

FOLDER = Path(__file__).parents[2] / "experiments/flights/tuning"
FILE = FOLDER / "flights.yaml"
SPACES = yaml.safe_load((FOLDER / "spaces.yaml").read_text())


def test_every_algorithm_is_searched() -> None:
    assert SPACES.keys() - {"dynamic", "pooled", "pooled_month"} == set(Params.read(FILE).experiment.compare.algorithms)


@pytest.mark.parametrize("label", SPACES)
def test_learning_rates_have_one_range(label: str) -> None:
    algorithm, initialiser = ("fedavg", label) if label == "dynamic" else (label, "previous")
    params = Params.read(
        FILE, [f"algorithm={algorithm}", f"initialiser={initialiser}", f"tune.space={SPACES[label]}", "scenario.last=3"]
    )
    dimensions = {dimension.key: dimension.limits for dimension in Space(params).dimensions}
    assert dimensions.keys() == SPACES[label].keys()
    assert dimensions.get("local.lr", (0.01, 1.0)) == (0.01, 1.0)
    assert params.experiment.tune.seed not in params.experiment.compare.seeds
    assert not params.experiment.tune.prune


def test_the_frozen_model_is_not_trained_after_january() -> None:
    run = Params.read(FILE).run(algorithm="frozen")
    rounds = run.scenario.rounds_per_period  # type: ignore[attr-defined]
    rates = [learning_rate(run.local, t, 12 * rounds) for t in range(12 * rounds)]
    assert rates[:rounds] == pytest.approx([run.local.lr] * rounds, rel=1e-5)
    assert rates[rounds:] == [0.0] * 11 * rounds


def test_pooled_models_average_after_every_step() -> None:
    params = Params.read(FILE)
    everything, month = (params.run(algorithm=label) for label in ("pooled", "pooled_month"))
    assert (everything.scenario.memory, month.scenario.memory) == (11, 0)  # type: ignore[attr-defined]
    assert everything.exchange == month.exchange
    assert everything.exchange.intervals == "a"  # type: ignore[attr-defined]
