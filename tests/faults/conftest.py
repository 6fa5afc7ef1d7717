from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

PARAMS = """
data: {{name: digits, root: {data}}}
scenario: {{name: sessions, num_devices: 4, num_sessions: 3, rounds_per_session: 8, label_overlap: 0.4}}
model: {{name: logistic}}
local: {{amount: 2, unit: steps, batch_size: 8, lr: 0.1, momentum: 0.5, momentum_scope: client, schedule: cosine}}
engine: {{accelerator: cpu, workers: 1}}
initialiser: {{name: average}}
checkpoint: {{every: 3}}
tracking: {{mlflow: false}}
"""
ROUNDS = 24


@pytest.fixture(scope="session")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of prepared data for all runs of the session."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def folder(tmp_path: Path, shared_data: Path) -> Path:
    """A working directory with a small run: two groups of four devices take turns in three sessions of eight rounds."""
    (tmp_path / "params.yaml").write_text(PARAMS.format(data=shared_data))
    return tmp_path
