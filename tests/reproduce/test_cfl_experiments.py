"""The tables of continual federated learning: their measure, their numbers, and the runs behind them."""

import math
from pathlib import Path

import numpy as np
import pytest

from fedtide.studies.reproduce.history import History, Session
from fedtide.studies.reproduce.measures import BestRounds
from fedtide.studies.reproduce.recipe import Recipe
from fedtide.studies.reproduce.reproduce import count_runs, experiments

ROOT = Path(__file__).parents[2] / "experiments"
FILES = {name: path for name, path in experiments(ROOT).items() if path.parent.name == "cfl"}
CELLS = {
    "cfl_figure1_fmnist": 4,
    "cfl_table2_cifar10": 7,
    "cfl_table3_fmnist": 15,
    "cfl_table4_cifar10": 14,
    "cfl_table5_cifar10": 12,
    "cfl_table5_fmnist": 12,
    "cfl_table6_cifar10": 5,
    "cfl_table6_fmnist": 5,
}


def session(accuracy, information_loss=math.nan):
    nothing = np.full(len(accuracy), math.nan)
    return Session(np.array(accuracy, dtype=float), 0.0, nothing, nothing, nothing, information_loss)


def test_the_best_rounds_wherever_they_are():
    curve = session([50, 90, math.nan, 70, 80], 0.25)
    assert BestRounds(rounds=2).measure(curve, curve) == [85]
    assert BestRounds(rounds=9, information_loss=True).measure(curve, curve) == pytest.approx([72.5, 0.25])
    assert [quantity.name for quantity in BestRounds(information_loss=True).quantities] == [
        "accuracy",
        "information_loss",
    ]


def test_the_last_measured_loss_of_a_session(tmp_path):
    (tmp_path / "history.csv").write_text(
        "round,session,test_accuracy\n" + "".join(f"{t},{1 + t // 4},0.5\n" for t in range(1, 7))
    )
    assert math.isnan(History(tmp_path).session(1).information_loss)
    measured = {2: "0.5", 5: ""}
    (tmp_path / "history.csv").write_text(
        "round,session,test_accuracy,information_loss\n"
        + "".join(f"{t},{1 + t // 4},0.5,{measured.get(t, '')}\n" for t in range(1, 7))
    )
    history = History(tmp_path)
    assert history.session(1).information_loss == 0.5
    assert math.isnan(history.session(2).information_loss)


@pytest.mark.parametrize("name", FILES)
def test_the_number_of_cells_and_runs(name):
    recipe = Recipe(FILES[name])
    assert (len(recipe.cells), count_runs(recipe)) == (CELLS[name], 3 * CELLS[name])


def test_numbers_that_the_text_discusses():
    def number(name, *cell):
        found = {key[0].values[:-2]: value for key, value in Recipe(FILES[name]).published.items()}
        return found[cell]

    core, plain = (number("cfl_table4_cifar10", "0.1", method) for method in ("cfl_core_set", "fedavg"))
    assert round(core.mean - plain.mean, 2) == 10.97
    assert number("cfl_table4_cifar10", "0.2", "cfl_prox") == (79.04, 0.01)
    assert number("cfl_table3_fmnist", "0.1", "cfl_full") == (77.37, 0.63)
    assert math.isnan(number("cfl_table3_fmnist", "0.2", "fedavg").mean)
    assert number("cfl_table5_cifar10", "0.5", "cfl_core_set").mean == 84.59
    assert number("cfl_table6_cifar10", "cfl_regularization").mean == 79.07
    assert number("cfl_table2_cifar10", "cfl_generative") == (74.18, 0.08)


def test_settings_of_the_runs():
    recipe = Recipe(FILES["cfl_table4_cifar10"])
    runs = {cell.algorithm: recipe.runs(cell, 1)[0] for cell in recipe.cells if cell.world == ("0.1",)}
    assert {run.model.name for run in runs.values()} == {"lenet"}
    assert {run.local.unit for run in runs.values()} == {"steps"}  # a core set makes epochs longer
    assert (runs["cfl_full"].algorithm.layers, runs["cfl_regularization"].algorithm.layers) == ("full", "top")
    assert (runs["cfl_prox"].algorithm.mu, runs["fedprox"].algorithm.mu) == (0.1, 0.1)
    assert (runs["cfl_herding"].algorithm.choice, runs["cfl_core_set"].algorithm.choice) == ("herding", "uniform")
    paper = Recipe(FILES["cfl_table4_cifar10"], "paper")
    assert paper.runs(paper.cells[0], 1)[0].model.name == "resnet18"
    windows = Recipe(FILES["cfl_table5_cifar10"])
    assert {windows.runs(cell, 1)[0].scenario.overlap for cell in windows.cells} == {0.0, 0.25, 0.5}
    assert windows.runs(windows.cells[0], 1)[0].scenario.drift == "pointer"
    fresh = Recipe(FILES["cfl_table6_cifar10"])
    assert fresh.runs(fresh.cells[0], 1)[0].scenario.drift == "fresh"
