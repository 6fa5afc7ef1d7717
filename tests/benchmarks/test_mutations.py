"""``benchmarks/mutations.py`` in a project of one function: a defect that a test finds, one that none can find."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmark_scripts import SCRIPTS, Call

DEFECTS = """
# a comment
sums.sign: the difference instead of the sum
    sums.py < test_sums.py
    - return first + second
    + return first - second
sums.order: the same sum
    sums.py < test_sums.py
    - return first + second
    + return second + first
"""
TESTS = """
from pathlib import Path

import sums


def test_source():
    '''Fails on any edit, so it finds nothing.'''
    assert Path(sums.__file__).read_text() == {source!r}


def test_sum():
    assert sums.total(1, 2) == 3
"""
SOURCE = "def total(first, second):\n    return first + second\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tree = tmp_path / "project"
    (tree / "src/fedtide").mkdir(parents=True)
    (tree / "tests").mkdir()
    (tree / "src/fedtide/sums.py").write_text(SOURCE)
    (tree / "tests/test_sums.py").write_text(TESTS.format(source=SOURCE))
    (tree / "tests/conftest.py").write_text(
        "import sys\nfrom pathlib import Path\n\nsys.path.insert(0, str(Path(__file__).parents[1] / 'src/fedtide'))\n"
    )
    (tmp_path / "defects.txt").write_text(DEFECTS)
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tree, check=True)
    return tree


@pytest.mark.slow
def test_a_defect_is_found_by_the_test_of_what_it_breaks_and_an_innocent_edit_by_none(
    call: Call, project: Path
) -> None:
    lines = call("mutations.py", "--tree", project, "--defects", "defects.txt", "--results", "found.jsonl")
    found = {row["id"]: row for row in map(json.loads, Path("found.jsonl").read_text().splitlines())}
    assert found["sums.sign"]["found_by"] == "tests/test_sums.py::test_sum"
    assert (found["sums.order"]["found_by"], found["sums.order"]["searched"]) == (None, "suite")
    assert lines[-1] == "1 of 2 found"
    assert any(line.startswith("| sums.order | the same sum | **not found** |") for line in lines)
    assert (project / "src/fedtide/sums.py").read_text() == SOURCE


def test_every_planted_defect_fits_the_tree(call: Call) -> None:
    lines = call("mutations.py", "--list")
    heads = [line for line in (SCRIPTS / "defects.txt").read_text().splitlines() if line[:1].strip() not in ("", "#")]
    assert [line.split()[0] for line in lines] == [head.split(":")[0] for head in heads]


def test_a_defect_that_does_not_fit_is_named(call: Call, project: Path) -> None:
    (project / "src/fedtide/sums.py").write_text(SOURCE.replace("first +", "first  +"))
    with pytest.raises(SystemExit, match=r"sums\.sign: sums\.py has this text 0 times, not once"):
        call("mutations.py", "--tree", project, "--defects", "defects.txt", "--list")
