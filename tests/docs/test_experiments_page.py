"""Experiments and commands that the pages on published tables and their claims name."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from fedtide.core import plugins
from fedtide.studies.reproduce.recipe import Recipe
from fedtide.studies.reproduce.reproduce import count_runs, experiments

ROOT = Path(__file__).parents[2]
TEXT = "\n".join(
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("docs/experiments.md", "docs/reports/experiments_list.md", "docs/reports/tables.md")
)
FINDINGS = "\n".join(
    path.read_text(encoding="utf-8")
    for path in ((ROOT / "docs/findings.md"), *sorted((ROOT / "docs/reports").glob("claims_*.md")))
)
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


@cache
def recipe_of(name: str, profile: str | None = None, *overrides: str) -> Recipe:
    return Recipe(FILES[name], profile, overrides)


def test_searches_go_on_from_what_the_one_before_has_left():
    searches = [shlex.split(line) for line in COMMANDS if line.startswith("fedtide tune")]
    written = [f"{words[words.index('--out') + 1]}/best.yaml" for words in searches]
    read = [
        words[words.index("--params") + 1] for words in (shlex.split(line) for line in COMMANDS) if "--params" in words
    ]
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
    recipe = recipe_of(name)
    assert (len(recipe.cells), count_runs(recipe)) == (cells, runs)
