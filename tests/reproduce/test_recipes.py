"""Experiment files: what is merged in which order, which cells and runs come of it, and what is refused."""

import pytest

from fedtide.core.errors import SettingsError
from fedtide.studies.reproduce.recipe import Recipe


def run(recipe, cell=0, seed=1):
    return recipe.runs(recipe.cells[cell], seed)[0]


def test_the_cells_are_the_published_rows_in_the_order_of_the_grid(tiny):
    recipe = Recipe(tiny)
    assert recipe.profile == "plain"
    assert recipe.columns == ("alpha", "algorithm", "transition", "method")
    assert [cell.values for cell in recipe.cells] == [
        ("0.3", "fedavg", "second", "previous"),
        ("0.3", "fedavg", "third", "previous"),
        ("0.7", "scaffold", "third", "average"),
    ]
    assert [number.mean for number in recipe.published.values()] == [10.0, 20.0, 30.0]
    assert [run(recipe, cell).partition.alpha for cell in range(3)] == [0.3, 0.3, 0.7]
    assert run(recipe, 0) is run(recipe, 1), "transitions of one run share it"
    assert run(recipe, 0, seed=2) is not run(recipe, 0)


def test_without_published_numbers_the_cells_are_the_whole_grid(tiny):
    recipe = Recipe(tiny, overrides=["experiment.published=null"])
    assert len(recipe.cells) == len(set(recipe.cells)) == 2 * 2 * 2 * 2
    assert recipe.published == {}


def test_a_number_whose_transition_is_not_published_holds_for_all(tiny):
    (tiny.parent / "published" / "tiny.csv").write_text("alpha,algorithm,method,mean\n0.7,fedavg,previous,5\n")
    recipe = Recipe(tiny)
    assert [cell.transition for cell in recipe.cells] == ["second", "third"]
    assert {number.mean for number in recipe.published.values()} == {5.0}


def test_file_then_profile_then_the_files_own_profile_then_set_then_grid(tiny):
    assert (run(Recipe(tiny)).local.lr, run(Recipe(tiny)).local.momentum) == (0.1, 0.0)
    fast = run(Recipe(tiny, "fast"))
    assert (fast.local.lr, fast.local.momentum, fast.local.amount) == (0.3, 0.5, 1)
    given = run(Recipe(tiny, "fast", ["local.lr=0.7", "compare.seeds=[5]"]))
    assert (given.local.lr, given.local.momentum) == (0.7, 0.5)


def test_a_profile_may_run_another_algorithm_in_a_cell(tiny):
    for profile, label in (("plain", "scaffold"), ("fast", "fedavg")):
        made = run(Recipe(tiny, profile), cell=2)
        assert (made.label, made.algorithm.name, made.initializer.name) == (label, label, "average")


def test_an_axis_of_named_groups_merges_their_settings(tiny):
    groups = "{even: {partition: {name: iid}, algorithms: {fedavg: {with: {local: {lr: 0.2}}}}}, skewed: {}}"
    recipe = Recipe(tiny, overrides=["experiment.published=null", f"experiment.grid={{law: {{groups: {groups}}}}}"])
    assert recipe.columns[0] == "law"
    even, skewed = (recipe.select([f"law={name}", "algorithm=fedavg"])[0] for name in ("even", "skewed"))
    found = {cell: recipe.runs(cell, 1)[0] for cell in (even, skewed)}
    assert [item.partition.name for item in found.values()] == ["iid", "dirichlet_session"]
    assert [item.local.lr for item in found.values()] == [0.2, 0.1]


def test_the_run_of_the_reference_comes_with_that_of_a_cell(tiny):
    recipe = Recipe(tiny, overrides=["experiment.measure={name: learning, target: 50}"])
    assert [item.label for item in recipe.runs(recipe.cells[2], 1)] == ["scaffold", "fedavg"]
    assert len({id(item) for item in recipe.runs(recipe.cells[0], 1)}) == 1


def test_filters_choose_cells(tiny):
    recipe = Recipe(tiny)
    assert recipe.select([]) == recipe.cells
    assert recipe.select(["algorithm=fedavg", "transition=third"]) == recipe.cells[1:2]
    assert recipe.select(["alpha=0.3,0.7"]) == recipe.cells
    for item, message in (
        ("algo=fedavg", "did you mean 'algorithm'"),
        ("algorithm", "write column=value"),
        ("algorithm=moon", "no cell with algorithm 'moon'"),
        ("alpha=3", "known: 0.3, 0.7"),
    ):
        with pytest.raises(SettingsError, match=message):
            recipe.select([item])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"profile": "fas"}, "no profile 'fas'; did you mean 'fast'"),
        ({"overrides": ["local.lrr=1"]}, "unknown key 'local.lrr'"),
        ({"overrides": ["experiment.windows=[3]"]}, "unknown key 'windows'"),
        ({"overrides": ["partition.alpha=0.5"]}, "choose cells with --only alpha="),
        ({"overrides": ["experiment.transitions={second: 9, third: 3}"]}, "transitions.second = 9 .*from 1 to 3"),
        ({"overrides": ["experiment.published=published/none.csv"]}, "no file .*none.csv"),
        ({"overrides": ["experiment.substitutes={previous: {fedavg: fedagv}}"]}, "unknown label 'fedagv'"),
        ({"overrides": ["experiment.measure={name: transition, windows: [1]}"]}, "measure"),
        (
            {"overrides": ["experiment.measure={name: best_round, metric: auroc}"]},
            "runs do not record it; add auroc to",
        ),
        ({"overrides": ["experiment.measure={name: learning, target: 9, reference: fedagv}"]}, "did you mean 'fedavg'"),
        (
            {"overrides": ["experiment.grid={alpha: {key: partition.alpha}}"]},
            "requires either key and values, or groups",
        ),
        ({"overrides": ["experiment.grid={alpha: {key: a, values: [1], groups: {b: {}}}}"]}, "requires either key"),
    ],
)
def test_bad_settings_are_one_line(tiny, arguments, message):
    with pytest.raises(SettingsError, match=message) as raised:
        Recipe(tiny, **arguments)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("alfa,mean\n0.3,1\n", "unknown column 'alfa'; did you mean 'alpha'"),
        ("alpha,std\n0.3,1\n", "no column 'mean'"),
        ("alpha,mean\n0.4,1\n", "line 2: unknown alpha '0.4'"),
        ("alpha,mean\n0.3,1\n0.3,2\n", "line 3: duplicate row"),
        ("alpha,mean\n0.3,much\n", "line 2, mean: 'much' is not a number"),
    ],
)
def test_a_wrong_file_of_published_numbers_is_refused(tiny, rows, message):
    (tiny.parent / "published" / "tiny.csv").write_text(rows)
    with pytest.raises(SettingsError, match=message):
        Recipe(tiny)


def test_a_file_without_the_block_and_a_profile_without_a_file_are_refused(tiny):
    (tiny.parent / "profiles" / "plain.yaml").unlink()
    with pytest.raises(SettingsError, match=r"profile 'plain' requires the file .*plain\.yaml"):
        Recipe(tiny)
    tiny.write_text("data: digits\n")
    with pytest.raises(SettingsError, match="no block 'experiment'"):
        Recipe(tiny)
