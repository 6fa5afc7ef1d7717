"""DynamicFL's tables: every row is the method it names."""

from pathlib import Path
from typing import Any

import pytest

from fedtide.core import plugins
from fedtide.methods.communication.intervals import uploads
from fedtide.settings.run import RunSettings
from fedtide.studies.reproduce.recipe import Recipe
from fedtide.training.engine.plan import step_count

FAMILY = Path(__file__).parents[2] / "experiments/dynamicfl"
FILES = sorted(set(FAMILY.glob("*.yaml")) - set(FAMILY.glob("*fmnist*")))


def labeled(file: Path, profile: str) -> dict[str, RunSettings]:
    """Settings by label, in the first world of a table."""
    recipe = Recipe(file, profile)
    return {cell.algorithm: recipe.runs(cell, 0)[0] for cell in reversed(recipe.cells)}


@pytest.fixture(scope="module", params=FILES, ids=lambda file: file.stem)
def runs(request: pytest.FixtureRequest) -> dict[str, dict[str, RunSettings]]:
    """Settings by profile and label."""
    return {profile: labeled(request.param, profile) for profile in ("released", "corrected")}


def test_labels_name_the_settings_of_a_run(runs: dict[str, dict[str, RunSettings]]) -> None:
    for profile, found in runs.items():
        for label, settings in found.items():
            communication: Any = settings.communication
            if communication.name == "per_round":
                assert settings.algorithm.name == label
                assert settings.local.unit == "epochs"
                continue
            name, _, budget = label.partition("_")
            assert settings.algorithm.name == "fedavg"
            assert communication.intervals == {"dynamicsgd": "a"}.get(name, name.replace("-star", "*"))
            if budget:
                assert f"{communication.budget.name}-{communication.budget.beta:g}" == budget
            assert communication.schedule == {"released": "legacy", "corrected": "paper"}[profile]
            if "*" in communication.intervals:
                assert communication.star_mode == {"released": "damped", "corrected": "exclusive"}[profile]


def test_the_released_program_keeps_momentum(runs: dict[str, dict[str, RunSettings]]) -> None:
    scopes = {profile: found["dynamicsgd"].local.momentum_scope for profile, found in runs.items()}
    assert scopes == {"released": "client", "corrected": "round"}
    assert all(found["fednova"].local == found["fedavg"].local for found in runs.values())


def test_feddyn_as_released_has_no_penalty(runs: dict[str, dict[str, RunSettings]]) -> None:
    found: dict[str, Any] = {profile: by_label["feddyn"].algorithm for profile, by_label in runs.items()}
    assert (found["released"].alpha, found["released"].weighting.name) == (0.0, "samples")
    assert (found["corrected"].alpha, found["corrected"].weighting.name) == (0.1, "uniform")


def test_a_round_has_250_steps_and_single_intervals_cost_what_was_published(
    runs: dict[str, dict[str, RunSettings]],
) -> None:
    settings = runs["released"]["dynamicsgd"]
    assert step_count(123, 500.0, settings.local) == step_count(4000, 500.0, settings.local) == 250
    assert step_count(123, 500.0, runs["released"]["fedavg"].local) == 61
    for label, found in runs["released"].items():
        communication: Any = found.communication
        if communication.name == "intervals" and not {"-", "*"} & set(communication.intervals):
            made = plugins.load("communication", "intervals")(communication)
            nu = len(uploads(250, made.high, communication.schedule))  # type: ignore[attr-defined]
            printed = {"dynamicsgd": 0.996, "b": 0.252, "c": 0.064, "d": 0.032}
            assert nu / 250 == pytest.approx(printed[label])


def test_the_published_numbers_are_there() -> None:
    for file in FILES:
        recipe = Recipe(file)
        accuracies = [number for (_, quantity), number in recipe.published.items() if quantity == "accuracy"]
        kappas = [number for (_, quantity), number in recipe.published.items() if quantity == "kappa"]
        assert len(accuracies) == len(kappas) == len(recipe.cells)
        assert all(10 <= number.mean <= 80 for number in accuracies)
        assert all(0.004 <= number.mean <= 1 for number in kappas)


@pytest.mark.parametrize("kind", ["shards", "dirichlet"])
def test_on_fashion_mnist_rows_are_those_of_cifar_10_with_300_steps(kind: str) -> None:
    names = (f"dynamicfl_intervals_fmnist_{kind}", f"dynamicfl_intervals_{kind}")
    here, there = (labeled(FAMILY / f"{name}.yaml", "corrected") for name in names)
    for label, run in here.items():
        same = there[label].model_copy(update={"data": run.data, "model": run.model})
        assert same == run
    assert step_count(123, 600.0, here["a-g"].local) == 300
