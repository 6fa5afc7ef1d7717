"""The notebooks as they are committed: outputs without traces of a machine. ``make test`` runs them."""

import json
import re
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_notebook_is_committed_with_its_outputs_and_nothing_else(path):
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
