"""How much of every published table is there, from the files in a results folder."""

import json

import pytest

from fedtide.core.errors import SettingsError
from fedtide.report.formats import NOTHING
from fedtide.studies.reproduce.status import CURRENT, EARLIER, OTHER_SEEDS, UNKNOWN, page, status


@pytest.fixture
def done(tiny, folder, fedtide):
    """Results of a tiny experiment: two of its three cells, under one of its profiles."""
    assert fedtide("reproduce", "tiny", "--profile", "plain", "--only", "algorithm=fedavg", "-q").status == 0
    return folder / "results"


@pytest.mark.slow
def test_what_is_there_is_counted(done):
    (found,) = status(done, done.parent / "experiments")
    assert (found.recipe.name, found.recipe.profile) == ("tiny", "plain")
    assert (found.cells, len(found.recipe.cells), found.seeds) == (2, 3, (2, 2))
    assert len(found.differences) == 2
    assert found.settings == CURRENT
    assert found.table is not None
    assert (done / found.table).is_file()
    lines = (done / "tiny" / "plain.md").read_text()
    for difference in found.differences:
        assert f"{difference:+.2f}".replace("-", "\N{MINUS SIGN}") in lines


@pytest.mark.slow
def test_the_command_writes_the_page(done, fedtide):
    exit_, out, _ = fedtide("reproduce", "--status", "--json")
    (row,) = json.loads(out[-1])
    assert exit_ == 0
    assert (row["experiment"], row["cells"], row["seeds"], row["rounds"]) == ("tiny", "2 of 3", "2", "2")
    text = (done / "README.md").read_text()
    assert "| [tiny](tiny/plain.md) | plain | 2 of 3 | 2 | 2 |" in text


def test_an_experiment_without_results_has_none(tiny, folder):
    found = status(folder / "results", folder / "experiments")
    assert [(item.cells, item.seeds, item.differences, item.table) for item in found] == [(0, (0, 0), [], None)]
    assert f"| tiny | plain | 0 of 3 | {NOTHING} | {NOTHING} |" in page(found)


@pytest.mark.slow
def test_numbers_of_other_settings_are_counted_apart(done, fedtide):
    """One cell each: of the current settings, and of others."""
    file = done / "tiny" / "plain.csv"
    head, *rows = file.read_text().splitlines()
    measured = [row.rpartition(",")[0] for row in rows if not row.endswith(",0,0,")]
    half = len(measured) // 2  # rows of the first cell

    def write(first: str, second: str) -> None:
        made = [f"{row},{first if place < half else second}" for place, row in enumerate(measured)]
        file.write_text("\n".join([head, *made, ""]))

    write(rows[0].rpartition(",")[2], "0123456789ab")
    parts = status(done, done.parent / "experiments")
    assert [(part.settings, part.cells, len(part.differences)) for part in parts] == [(CURRENT, 1, 1), (EARLIER, 1, 1)]
    exit_, out, _ = fedtide("reproduce", "--status", "--json")
    shown = [(row["settings"], row["cells"]) for row in json.loads(out[-1])]
    assert (exit_, shown) == (0, [(CURRENT, "1 of 3"), (EARLIER, "1 of 3")])
    write("0123456789ab", "")
    assert [part.settings for part in status(done, done.parent / "experiments")] == [EARLIER, UNKNOWN]


@pytest.mark.slow
def test_numbers_of_fewer_or_more_seeds_are_counted_apart(tiny, folder, fedtide):
    """Of the same settings, with the first of the experiment's two seeds, and with one more."""
    for seeds in ("1", "1,2,3"):
        chosen = ("--profile", "plain", "--only", "algorithm=fedavg", "--seeds", seeds)
        assert fedtide("reproduce", "tiny", *chosen, "-q").status == 0
        assert {part.settings for part in status(folder / "results", folder / "experiments")} == {OTHER_SEEDS}


def test_a_foreign_file_is_refused(tiny, folder):
    (folder / "results" / "tiny").mkdir(parents=True)
    (folder / "results" / "tiny" / "plain.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SettingsError, match=r"plain\.csv: not written by `fedtide reproduce`; move or delete it"):
        status(folder / "results", folder / "experiments")
