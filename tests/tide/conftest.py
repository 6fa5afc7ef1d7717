import runpy
import shutil
import sys
from pathlib import Path

import pytest

from commands import fedtide, folder, shared_data

__all__ = ["fedtide", "folder", "frozen", "shared_data", "suite"]

PROJECT = Path(__file__).parents[2]

WORLD = """
data: {{name: digits, root: {data}}}
validation: 0.2
scenario: {{name: sessions, num_devices: 3, num_sessions: 3, rounds_per_session: 2}}
model: {{name: softmax_regression}}
local: {{steps: 2, lr: 0.1}}
evaluation: {{session_start_losses: false, clients_every: 1}}
compare: {{seeds: [0, 1]}}
tune: {{trials: 3, sampler: {{name: grid}}, prune: false, metric: {metric}, over: {over}}}
tracking: {{mlflow: false}}
"""


def freeze(folder: Path) -> None:
    """Write ``suite.json`` by ``python benchmarks/tide/freeze.py FOLDER``."""
    script = str(PROJECT / "benchmarks" / "tide" / "freeze.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, str(folder)])
        runpy.run_path(script, run_name="__main__")


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    """A suite of two worlds, in which a run takes a moment."""
    mine = tmp_path_factory.mktemp("frozen") / "mine"
    (mine / "worlds").mkdir(parents=True)
    named = ("changing", "changes", "validation_accuracy"), ("ending", "end", "served_accuracy_mean")
    for name, over, metric in named:
        (mine / "worlds" / f"{name}.yaml").write_text(WORLD.format(data=shared_data, over=over, metric=metric))
    freeze(mine)
    return mine


@pytest.fixture
def suite(frozen: Path, folder: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(frozen, folder / "mine"))
