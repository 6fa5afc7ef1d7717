"""Curves of the runs behind a table."""

import io

import pandas as pd
import pytest
from matplotlib.image import imread

from fedtide.studies.reproduce.curves import curves, curves_csv, curves_png, smoothed, span
from fedtide.studies.reproduce.history import History
from fedtide.studies.reproduce.recipe import Recipe

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


def test_the_picture_has_a_panel_per_world_and_the_published_numbers(recipe, find):
    lines = curves(recipe, find, {})
    picture = curves_png(lines, recipe)
    assert picture == curves_png(lines, recipe)
    first, both = ({cell: lines[cell] for cell in list(lines)[:count]} for count in (1, 2))
    heights = [imread(io.BytesIO(curves_png(part, recipe))).shape[0] for part in (first, both)]
    assert heights[1] == 2 * heights[0]
    recipe.published.clear()
    assert curves_png(lines, recipe) != picture


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


def test_the_axis_leaves_out_the_climb_of_the_first_rounds():
    climb = pd.Series([10.0, 50.0] + [90.0, 95.0] * 9)
    low, high = span([climb, pd.Series([20.0])], [])
    assert low < 20
    assert high == pytest.approx(95 + 0.04 * 75)
    low, high = span([climb], [97.0])
    assert 89 < low < 90
    assert 97 < high < 98
    assert span([climb], [80.0])[0] < 80
    assert span([pd.Series([0.0, 100.0])], []) == (0.0, 100.0)
