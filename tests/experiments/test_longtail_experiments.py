"""The long-tail tables: published facts, cells, and the two readings of the momentum's normalization."""

from pathlib import Path

import pytest

from fedtide.studies.reproduce.recipe import Recipe
from fedtide.studies.reproduce.reproduce import experiments

FILES = {
    name: path
    for name, path in experiments(Path(__file__).parents[2] / "experiments").items()
    if path.parent.name == "fedwcm"
}
SETS = ("fmnist", "svhn", "cifar10", "cifar100", "tiny_imagenet")
CELLS = {
    **{f"fedwcm_table1_{data}": 70 for data in SETS},
    "fedwcm_table2_cifar10": 30,
    **dict.fromkeys(("fedwcm_table3_cifar10", "fedwcm_table3_fmnist"), 15),
    **dict.fromkeys(("fedwcm_table4_cifar10", "fedwcm_table4_fmnist"), 36),
    **dict.fromkeys(("fedwcm_table5_cifar10", "fedwcm_table5_fmnist"), 18),
    **dict.fromkeys(("fedwcm_epochs_cifar10", "fedwcm_epochs_fmnist"), 15),
}


@pytest.fixture(scope="module")
def recipe():
    made = {}

    def of(name, profile=None):
        return made.setdefault((name, profile), Recipe(FILES[name], profile))

    return of


@pytest.mark.parametrize("name", CELLS)
def test_cells_and_published_numbers(name, recipe):
    found = recipe(name)
    assert len(found.cells) == CELLS[name]
    published = found.table.published is not None
    assert published == (name.startswith("fedwcm_table") and (not name.endswith("fmnist") or "table1" in name))
    assert len(found.published) == CELLS[name] * published
    assert all(0.5 <= number.mean < 100 for number in found.published.values())


def one_run_each(found):
    """A run of every algorithm."""
    cells = {cell.algorithm: cell for cell in found.cells}
    return {algorithm: found.runs(cell, 1)[0] for algorithm, cell in cells.items()}


@pytest.mark.parametrize("name", [name for name in CELLS if name.endswith("_fmnist")])
def test_tables_on_fashion_mnist_differ_from_those_on_cifar10_in_data_model_and_augmentation_alone(name, recipe):
    mine, cifar = recipe(name), recipe(name.replace("fmnist", "cifar10"))
    for own, other in zip(mine.cells, cifar.cells, strict=True):
        run, theirs = mine.runs(own, 1)[0], cifar.runs(other, 1)[0]
        augmentation = {key: getattr(run.local, key) for key in ("flip", "crop", "crop_probability")}
        expected = {"data": run.data, "model": run.model, "local": theirs.local.model_copy(update=augmentation)}
        assert own == other
        assert run == theirs.model_copy(update=expected)


def test_profiles_differ_in_the_count_that_displacements_are_divided_by_and_in_nothing_else(recipe):
    actual, nominal = (one_run_each(recipe("fedwcm_table1_fmnist", profile)) for profile in ("actual", "nominal"))
    for name, run in actual.items():
        if name in ("fedavg", "balancefl"):
            assert run == nominal[name]
        else:
            norms = [each.algorithm.momentum_norm for each in (run, nominal[name])]
            assert norms == ["actual", "nominal"]
            assert run.model_copy(update={"algorithm": nominal[name].algorithm}) == nominal[name]


def test_what_the_labels_mean(recipe):
    runs = one_run_each(recipe("fedwcm_table1_cifar10"))
    objectives = [runs[f"fedcm{kind}"].objective.name for kind in ("", "_focal", "_balanced", "_sampler")]
    assert objectives == ["cross_entropy", "focal", "balanced_softmax", "cross_entropy"]
    assert {name for name, run in runs.items() if run.local.order == "class_balanced"} == {"fedcm_sampler", "balancefl"}
    assert {(run.local.lr, run.local.clip, run.local.weight_decay, run.scenario.rounds) for run in runs.values()} == {
        (0.1, 10.0, 0.001, 500)
    }
