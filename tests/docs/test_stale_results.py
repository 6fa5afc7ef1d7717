"""A page that shows numbers or pictures of an earlier version says so.

Which ones are: for published tables the settings that were recorded with their numbers, as ``results/README.md`` has them
(`fedtide reproduce --status`); for other comparisons ``results/earlier_versions.yaml``.
"""

import os
import re
import runpy
from pathlib import Path

import pytest
import yaml
from printed_commands import PAGES, ROOT

from fedtide.settings.reading.overrides import deep_merge
from fedtide.studies.reproduce.status import EARLIER, UNKNOWN

SAYS_SO = "Measured with an earlier version:"
LISTED = yaml.safe_load((ROOT / "results/earlier_versions.yaml").read_text(encoding="utf-8"))
TABLES = {
    f"{name}/{profile}"
    for name, profile, settings in re.findall(
        r"^\| \[(\w+)\]\([^)]*\) \| (\w+) \|.*\| ([a-z ]+) \|$",
        (ROOT / "results/README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    if settings in (EARLIER, UNKNOWN)
}


def forests() -> dict[str, set[str]]:
    """Results behind the figure and the table of claims of every paper."""
    script = runpy.run_path(str(ROOT / "experiments/findings.py"))
    return {
        f"docs/reports/images/forest_{file.parents[1].name}.png": {
            str(deep_merge(claim.measured, row).get("results"))
            for claim in script["read_paper"](file).claims
            for row in claim.rows.values()
        }
        for file in (ROOT / "experiments").glob("*/published/claims.yaml")
    }


FORESTS = forests()


def is_stale(result: str) -> bool:
    """Whether a file of results, by its path there without suffix, or one of a folder's, is of an earlier version."""
    folder, _, profile = result.partition("/")
    return (
        folder in LISTED or result in TABLES or (not profile and any(name.startswith(f"{folder}/") for name in TABLES))
    )


def stale_results(page: str, text: str) -> set[str]:
    """Results of an earlier version that a page shows: linked or named as code, or behind one of its pictures."""
    found = set()
    for result in re.findall(r"(?:\]\([^)]*|`)\bresults/(\w+/?\w*)[^)`\s]*[)`]", text):
        if not result.endswith(("/best", "/trials")) and is_stale(result):
            found.add(result)
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        picture = os.path.normpath(Path(page).parent / name)
        found |= {result for result in FORESTS.get(picture, ()) if is_stale(result)}
        found |= {folder for folder, item in LISTED.items() if picture in item["pictures"]}
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_it_shows_of_an_earlier_version(page):
    found = stale_results(page, PAGES[page])
    assert not found or SAYS_SO in PAGES[page], f"{page} shows {sorted(found)}; add a line with {SAYS_SO!r}"


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if SAYS_SO in text])
def test_a_page_that_says_so_shows_something_of_an_earlier_version(page):
    assert stale_results(page, PAGES[page])


def test_what_is_listed_exists():
    assert [name for name in LISTED if not (ROOT / "results" / name).is_dir()] == []
    assert all(item["why"] for item in LISTED.values())
