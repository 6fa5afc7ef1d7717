"""Tables and figures of docs/reports/claims_*.md are those of results/, and verdicts agree with their numbers."""

import math
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
PLACES = (ROOT / "results", ROOT / "experiments")


@cache
def weighed(family):
    """Lines of the table and rows of the figure of a paper."""
    return SCRIPT["weigh"](SCRIPT["read_paper"](CLAIMS[family]), *PLACES)


@cache
def measured(family):
    """Every claim of a paper with its verdict, the numbers of its rows, and their mean."""
    found = []
    for claim in SCRIPT["read_paper"](CLAIMS[family]).claims:
        rows = SCRIPT["evidence"](claim, *PLACES)
        mean = SCRIPT["summary"](claim, rows)
        found.append((claim, SCRIPT["verdict"](claim, mean), rows, mean))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", CLAIMS)
def test_the_table_and_the_figure_of_a_paper_are_those_of_the_results(family):
    lines, rows = weighed(family)
    page = (ROOT / f"docs/reports/claims_{family}.md").read_text(encoding="utf-8")
    assert SCRIPT["with_table"](page, lines) == page, AGAIN
    name = f"images/forest_{family}.png"
    assert f"]({name})" in page
    with Image.open(ROOT / "docs/reports" / name) as picture:
        assert picture.text["Description"] == SCRIPT["described"](rows), AGAIN


@pytest.mark.slow
@pytest.mark.parametrize("family", CLAIMS)
def test_a_verdict_agrees_with_its_interval(family):
    """A claim that holds, or that ours are consistent with, has an interval without zero unless there is one seed; one that is
    not reproduced differs from the published value by more than the interval. What holds was published, and that something
    does not matter needs a margin."""
    for claim, verdict, rows, mean in measured(family):
        if verdict.startswith("holds") and not claim.remark:
            assert not math.isnan(mean.published), claim.claim
        if re.search("hardly matter|no better", claim.claim):
            assert claim.margin is not None, claim.claim
        if claim.remark or claim.margin is not None or math.isnan(mean.half):
            continue
        if verdict.startswith(("holds", "consistent with")):
            assert mean.obtained > mean.half, claim.claim
        known = [row for row in rows if not math.isnan(row.published)]
        within = known and all(abs(row.obtained - row.published) <= row.half for row in known)
        if re.match("not (reproduced|consistent)", verdict):
            assert not within, claim.claim
            assert not known or not mean.signed or mean.obtained - mean.half <= 0 or mean.published < 0, claim.claim
        if verdict.startswith("not decided"):
            assert abs(mean.obtained) <= mean.half, claim.claim
            assert within or not known, claim.claim


def test_the_readme_counts_the_verdicts():
    found = [verdict for family in CLAIMS for _, verdict, _ in weighed(family)[0]]
    missed, untested = ("not reproduced", "not consistent"), ("not tested", "not testable")
    named = ("holds", "consistent with", "in part", "not decided", missed, untested)
    counts = [sum(verdict.startswith(start) for verdict in found) for start in named]
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    words = (
        "{} hold, {} are consistent with our runs, {} hold in part, {} are undecided, {} not reproduced, {} untested."
    )
    assert f"a verdict on each of {len(found)} claims" in text
    assert words.format(*counts) in text
    assert sum(counts) == len(found)
