"""The notebooks in ``examples/`` run from top to bottom, one after another, without each other's names."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager, start_new_kernel
from matplotlib import pyplot
from nbclient import NotebookClient

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


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One for all notebooks: each would import everything again."""
    manager, client = start_new_kernel()
    yield manager
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path, kernel: KernelManager) -> None:
    book = nbformat.read(path, as_version=4)
    book.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    NotebookClient(book, km=kernel).execute()
    assert not [output for cell in book.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
