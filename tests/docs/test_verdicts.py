"""Tables and figures of docs/reports/claims_*.md are those of results/."""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
CLAIMS = {path.parents[1].name: path for path in sorted((ROOT / "experiments").glob("*/published/claims.yaml"))}
SCRIPT = runpy.run_path(str(ROOT / "experiments/findings.py"))
AGAIN = "run `python experiments/findings.py results docs/reports`"


@cache
def weighed(family):
    """Lines of the table and rows of the figure of a paper."""
    return SCRIPT["weigh"](SCRIPT["read_paper"](CLAIMS[family]), ROOT / "results", ROOT / "experiments")


@pytest.mark.parametrize("family", CLAIMS)
def test_the_table_and_the_figure_of_a_paper_are_those_of_the_results(family):
    lines, rows = weighed(family)
    page = (ROOT / f"docs/reports/claims_{family}.md").read_text(encoding="utf-8")
    assert SCRIPT["with_table"](page, lines) == page, AGAIN
    name = f"images/forest_{family}.png"
    assert f"]({name})" in page
    with Image.open(ROOT / "docs/reports" / name) as picture:
        assert picture.text["Description"] == SCRIPT["described"](rows), AGAIN


def test_every_paper_has_claims():
    assert set(CLAIMS) == {"dynamic_init", "dynamicfl", "fedssg", "fedwcm", "cfl"}


def test_what_holds_is_not_within_its_interval():
    """A positive difference with an interval, of a claim that holds, excludes zero, unless the claim is that there is none."""
    for family in CLAIMS:
        for claim, verdict, number in weighed(family)[0]:
            if verdict.startswith("holds") and (found := re.search(r"^\S+ .*\((\S+), (\S+)\)$", number)):
                none = "hardly matter" in claim or "no better" in claim
                assert found[1].startswith("\N{MINUS SIGN}") == none, claim
