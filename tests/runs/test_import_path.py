"""Commands called in a folder whose files have the names of modules: no process takes one for a library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAPS = (
    *("json", "random", "socket", "threading", "pickle", "tempfile", "multiprocessing", "site", "sitecustomize"),
    *("usercustomize", "numpy", "torch", "yaml", "lightning", "optuna", "distributed", "preload"),
)
TRAP = """
from pathlib import Path

(Path(__file__).parent / "sprung").open("a").write(__name__ + " ")
raise SystemExit("a file of the current folder was imported")
"""
PARAMS = """
data: {name: digits}
scenario: {name: static, num_clients: 2, rounds: 1}
model: {name: softmax_regression}
local: {steps: 1}
engine: {accelerator: cpu, workers: 1}
compare: {seeds: [0, 1], workers: 2}
tune: {trials: 2, workers: 2}
tracking: {mlflow: false}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of traps, with settings."""
    folder = tmp_path_factory.mktemp("traps")
    (folder / "params.yaml").write_text(PARAMS)
    for name in TRAPS:
        (folder / f"{name}.py").write_text(TRAP)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("python", "-m", "fedtide", "list"),  # as torchrun calls it
        pytest.param(("fedtide", "compare", "--cluster", "local", "--runs", "away"), marks=pytest.mark.slow),
        pytest.param(("fedtide", "tune"), marks=pytest.mark.slow),
        pytest.param(("python", "-m", "fedtide", "run", "--set", "engine.devices=2"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_files_of_the_current_folder_are_not_imported(folder: Path, command: tuple[str, ...]) -> None:
    program, *arguments = command
    program = str(Path(sys.executable).parent / program)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    called = subprocess.run(
        [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    sprung = folder / "sprung"
    assert not sprung.exists(), sprung.read_text()
    assert called.returncode == 0, called.stderr
