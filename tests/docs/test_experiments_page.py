"""Experiments and commands that the pages on published tables and their claims name."""

import re
import shlex

import pytest
from printed_commands import PAGES, ROOT

from fedtide.core import plugins
from fedtide.studies.reproduce.recipe import Recipe
from fedtide.studies.reproduce.reproduce import count_runs, experiments

LISTS = ("docs/experiments.md", "docs/reports/experiments_list.md", "docs/reports/tables.md")
TEXT = "\n".join(PAGES[name] for name in LISTS)
FINDINGS = "\n".join(PAGES[name] for name in PAGES if name == "docs/findings.md" or "reports/claims_" in name)
COMMANDS = [
    *re.findall(r"^(fedtide .*)$", TEXT, re.MULTILINE),
    *(" ".join(line.split()) for line in dict.fromkeys(re.findall(r"`(fedtide reproduce [^`]*)`", FINDINGS))),
]
FILES = experiments(ROOT / "experiments")
ROWS = [
    (name, int(cells), int(runs))
    for names, cells, runs in re.findall(
        r"^\| (`\w[^|]*) \|[^|]*\|[^|]*\| ([\d, ]+) \| ([\d, ]+) \|$", TEXT, re.MULTILINE
    )
    for name, cells, runs in zip(
        re.findall(r"`(\w+)`", names),
        (cells.split(", ") * 5)[: len(re.findall("`", names)) // 2],
        (runs.split(", ") * 5)[: len(re.findall("`", names)) // 2],
        strict=True,
    )
]


def test_searches_go_on_from_what_the_one_before_has_left():
    searches = [shlex.split(line) for line in COMMANDS if line.startswith("fedtide tune")]
    written = [f"{words[words.index('--out') + 1]}/best.yaml" for words in searches]
    read = [words[words.index("--params") + 1] for words in map(shlex.split, COMMANDS) if "--params" in words]
    assert (ROOT / read[0]).exists()
    assert read[1:] == [*written, written[-1]]


def test_findings_name_experiments_that_exist():
    named = set(re.findall(r"`((?:table\d|cfl_|fedwcm_|dynamicfl_)\w+)`", FINDINGS)) - set(plugins.names("algorithms"))
    assert named
    assert named <= set(FILES)


def test_the_tables_list_every_experiment():
    assert {name for name, _, _ in ROWS} == set(FILES)


@pytest.mark.parametrize("row", ROWS, ids=[name for name, _, _ in ROWS])
def test_cells_and_runs_of_an_experiment(row):
    name, cells, runs = row
    recipe = Recipe(FILES[name])
    assert (len(recipe.cells), count_runs(recipe)) == (cells, runs)
