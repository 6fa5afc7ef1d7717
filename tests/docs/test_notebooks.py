"""The notebooks in ``examples/``: committed without traces of a machine; they run from top to bottom, each alone."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from matplotlib import pyplot

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
WRITE = "%%writefile "


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_with_its_outputs_and_nothing_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert len(text) < 300_000
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert not re.search(r"/(tmp|home|root|work|Users|var)/", text)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
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
