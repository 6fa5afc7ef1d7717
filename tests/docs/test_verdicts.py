"""Tables and figures of docs/claims_*.md are those of results/, and cells are short."""

import re
import runpy
from pathlib import Path

import pytest
from PIL import Image

from fedtide.reproduce.claims import read_paper
from fedtide.reproduce.forest import described, table, weigh

ROOT = Path(__file__).parents[2]
CLAIMS = {path.parents[1].name: path for path in sorted((ROOT / "experiments").glob("*/published/claims.yaml"))}
MOST_WORDS = 12
AGAIN = "run `python experiments/findings.py results docs`"


@pytest.mark.parametrize("family", CLAIMS)
def test_the_table_and_the_figure_of_a_paper_are_those_of_the_results(family):
    paper = read_paper(CLAIMS[family])
    lines, rows = weigh(paper, ROOT / "results", ROOT / "experiments")
    with_table = runpy.run_path(str(ROOT / "experiments/findings.py"))["with_table"]
    page = (ROOT / f"docs/claims_{family}.md").read_text(encoding="utf-8")
    assert with_table(page, table(lines)) == page, AGAIN
    name = f"images/forest_{family}.png"
    assert f"]({name})" in page
    with Image.open(ROOT / "docs" / name) as picture:
        assert picture.text["Description"] == described(rows), AGAIN


def test_every_paper_has_claims():
    assert set(CLAIMS) == {"dynamic_init", "dynamicfl", "fedssg", "fedwcm", "cfl"}


@pytest.mark.parametrize("family", CLAIMS)
def test_cells_are_short(family):
    page = (ROOT / f"docs/claims_{family}.md").read_text(encoding="utf-8")
    cells = [cell.split() for line in re.findall(r"^\|(.*)\|$", page, re.MULTILINE) for cell in line.split("|")]
    assert max(map(len, cells)) <= MOST_WORDS


def test_what_holds_is_not_within_its_interval():
    """A positive difference with an interval, of a claim that holds, excludes zero, unless the claim is that there is none."""
    for path in CLAIMS.values():
        for claim, verdict, number in weigh(read_paper(path), ROOT / "results", ROOT / "experiments")[0]:
            if verdict.startswith("holds") and (found := re.search(r"^\S+ .*\((\S+), (\S+)\)$", number)):
                none = "hardly matter" in claim or "no better" in claim
                assert found[1].startswith("\N{MINUS SIGN}") == none, claim
