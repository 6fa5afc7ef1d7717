import multiprocessing
import os
from multiprocessing import forkserver
from pathlib import Path

import pytest

from commands import shared_data

__all__ = ["folder", "shared_data"]

PARAMS = """
data: {{name: digits, root: {data}}}
scenario: {{name: sessions, num_devices: 4, num_sessions: 3, rounds_per_session: 5, label_overlap: 0.4}}
model: {{name: softmax_regression}}
local: {{steps: 2, batch_size: 8, lr: 0.1, momentum: 0.5, momentum_scope: client, schedule: cosine}}
engine: {{accelerator: cpu, executor: threads, workers: 1}}
initializer: {{name: average}}
client_state: {{on_session_start: keep}}
evaluation: {{models: [global, participants, all], every: 2}}
checkpoint: {{every: 3}}
tracking: {{mlflow: false}}
"""


@pytest.fixture(scope="session", autouse=True)
def _server(request: pytest.FixtureRequest) -> None:
    """Start the server that attempts are forked off, able to import what lies in this folder."""
    slow = any("test_campaign" in item.nodeid and item.get_closest_marker("slow") for item in request.session.items)
    multiprocessing.set_forkserver_preload(["warm" if slow else "server"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        forkserver.ensure_running()


@pytest.fixture
def folder(tmp_path: Path, shared_data: Path) -> Path:
    """A working directory with a small run: two groups of four devices take turns in three sessions of five rounds."""
    (tmp_path / "params.yaml").write_text(PARAMS.format(data=shared_data))
    return tmp_path
