"""Who is ahead in a published table, and by how much."""

from pathlib import Path

import numpy as np
import pytest

from fedtide.studies.reproduce.earlier import Earlier, Kept
from fedtide.studies.reproduce.leads import leads
from fedtide.studies.reproduce.recipe import Recipe
from fedtide.studies.reproduce.results import tabulate

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


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
