"""The notebooks in ``examples/`` run from top to bottom, one after another in one kernel, without each other's names."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager, start_new_kernel
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One for all notebooks: each would import everything again."""
    manager, client = start_new_kernel()
    yield manager
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path, kernel: KernelManager) -> None:
    book = nbformat.read(path, as_version=4)
    book.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    NotebookClient(book, km=kernel).execute()
    assert not [output for cell in book.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
