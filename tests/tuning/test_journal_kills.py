"""A search that is killed between any two lines of its journal, once and twice, ends as if it had not been."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from searches import search

from fedtide.settings.params import Params

pytestmark = pytest.mark.usefixtures("without_figures")
Make = Callable[..., Params]


@pytest.fixture(scope="module")
def two(params: Make) -> Params:
    return params({"trials": 2, "prune": False})


@pytest.fixture(scope="module")
def whole(two: Params, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("whole")
    search(two, home)
    return home


def journal(home: Path) -> Path:
    (found,) = (home / "tuning").glob("*.journal")
    return found


def continued(two: Params, whole: Path, lines: list[bytes], home: Path) -> Path:
    """The search with some lines in its journal and all its runs, which are complete, to the end."""
    shutil.copytree(whole / "runs", home / "runs")
    (home / "tuning").mkdir()
    (home / "tuning" / journal(whole).name).write_bytes(b"".join(lines))
    search(two, home)
    for name in ("trials.csv", "best.yaml"):
        assert (home / "tuning" / name).read_bytes() == (whole / "tuning" / name).read_bytes(), len(lines)
    assert len(list((home / "runs").iterdir())) == 2
    return journal(home)


def test_once(two: Params, whole: Path, tmp_path: Path) -> None:
    lines = journal(whole).read_bytes().splitlines(keepends=True)
    assert len(lines) > 10
    for count in range(1, len(lines), 3):
        continued(two, whole, lines[:count], tmp_path / str(count))
