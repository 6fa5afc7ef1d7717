"""The notebooks in ``examples/`` run from top to bottom, one after another, without each other's names."""

import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from matplotlib import pyplot

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
WRITE = "%%writefile "


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] * path.name.startswith("01")) for path in NOTEBOOKS],
    ids=lambda path: path.name,
)
def test_the_cells_of_a_notebook_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has imported everything."""
    monkeypatch.chdir(tmp_path)  # where it begins, and what is left afterwards
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("FEDTIDE_PLUGINS", "")
    monkeypatch.setattr(pyplot, "show", lambda: pyplot.close("all"))
    names: dict[str, Any] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and cell.source.startswith(WRITE):
            head, _, text = cell.source.partition("\n")
            Path(head.removeprefix(WRITE)).write_text(text)
        elif cell.cell_type == "code":
            exec(cell.source, names)
    sys.modules.pop("nets", None)
    assert capfd.readouterr().err == ""
