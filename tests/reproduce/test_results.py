"""Curves of the runs behind a table, and who is ahead in it."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedtide.studies.reproduce.curves import curves, curves_csv, smoothed
from fedtide.studies.reproduce.earlier import Earlier, Kept
from fedtide.studies.reproduce.history import History
from fedtide.studies.reproduce.recipe import Recipe
from fedtide.studies.reproduce.results import leads, tabulate

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
WHOLE = ["experiment.published=published/whole.csv", "experiment.transitions={whole run: 1}"]
ACCURACY = {1: [0.1, 0.2, 0.4], 2: [0.3, 0.4]}
"""Of both seeds of FedAvg; they differ in length."""


@pytest.fixture
def recipe(tiny):
    rows = "alpha,algorithm,quantity,mean\n0.3,fedavg,accuracy,90\n0.3,scaffold,accuracy,80\n0.7,fedavg,kappa,0.5\n"
    (tiny.parent / "published" / "whole.csv").write_text(rows)
    return Recipe(tiny, overrides=[*WHOLE, "compare.initializers=[previous]"])


@pytest.fixture
def find(tmp_path):
    def found(settings):
        if settings.label != "fedavg":
            return None
        shares = ACCURACY[settings.seed]
        rows = [f"{place},1,{share}" for place, share in enumerate(shares, 1)]
        (tmp_path / "history.csv").write_text("\n".join(["round,session,test_accuracy", *rows]))
        return History(tmp_path)

    return found


def test_a_curve_is_the_mean_of_the_runs_that_are_there(recipe, find):
    lines = curves(recipe, find, {})
    assert [(cell.world, cell.algorithm) for cell in lines] == [(("0.3",), "fedavg"), (("0.7",), "fedavg")]
    for line in lines.values():
        assert line.index.tolist() == [1, 2, 3]
        assert line.tolist() == pytest.approx([20, 30, 40])
    table = pd.read_csv(io.StringIO(curves_csv(lines, recipe)), index_col="round")
    assert table.columns.tolist() == ["alpha=0.3 algorithm=fedavg", "alpha=0.7 algorithm=fedavg"]
    assert table.to_numpy().tolist() == [[20, 20], [30, 30], [40, 40]]


def test_tables_about_single_sessions_have_none(tiny, find):
    assert not curves(Recipe(tiny), find, {})


def test_long_lines_are_moving_means(recipe):
    first, second = recipe.cells[:2]
    noisy = pd.Series([40.0, 60.0] * 50, index=range(1, 101))
    lines, window = smoothed({first: noisy, second: noisy[:7]})
    assert window == 2
    assert lines[first].tolist() == [40] + [50] * 99
    assert lines[second].tolist() == [40] + [50] * 6
    lines, window = smoothed({first: noisy[:99]})
    assert window == 1
    assert lines[first].equals(noisy[:99])


def lead_of(name, algorithm):
    heads, lines = leads(tabulate(Recipe(EXPERIMENTS / f"fedssg/{name}.yaml"), lambda settings: None, Earlier()))
    assert heads == ["algorithm", "published"]
    return {line[0]: line[1] for line in lines}[algorithm]


def test_the_published_lead_of_fedssg():
    """Against the best baseline: 1.26 points over the six printed rows of CIFAR-10."""
    names = ("table1_cifar10_100", "table1_cifar10_500")
    found = [float(lead_of(name, "fedssg").split()[0]) for name in names]
    assert np.mean(found) == pytest.approx(1.26, abs=0.01)
    assert lead_of(names[0], "fedssg").endswith("(first in 3 of 3)")
    assert lead_of(names[0], "fedavg").startswith("\N{MINUS SIGN}")


def test_obtained_leads_are_over_the_rows_in_which_all_have_a_number(tiny):
    """Methods are compared within an algorithm; the world in which one has no number is left out."""
    recipe = Recipe(tiny, overrides=["experiment.published=null", "experiment.transitions={end: 3}"])
    numbers = {("0.3", "previous"): 10.0, ("0.3", "average"): 13.0, ("0.7", "previous"): 30.0}
    earlier = Earlier(
        {
            (cell, quantity): Kept(numbers[cell.world[0], cell.method], 0.5, 2, 2)
            for cell in recipe.cells
            for quantity in recipe.table.measure.quantities
            if cell.algorithm == "fedavg" and (cell.world[0], cell.method) in numbers
        }
    )
    _, lines = leads(tabulate(recipe, lambda settings: None, earlier))
    assert {line[0]: line[1] for line in lines} == {
        "previous": "\N{MINUS SIGN}3.00 (first in 0 of 1)",
        "average": "+3.00 (first in 1 of 1)",
    }
