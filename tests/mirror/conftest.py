import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedtide.runs.mlflow.store import Store
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new store's database: MLflow needs a second to make one, so the tests share it."""
    folder = tmp_path_factory.mktemp("store")
    Store(folder / "mlruns", "unused")
    copy = folder / "mlflow.db"
    with closing(sqlite3.connect(folder / "mlruns" / "mlflow.db")) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode=WAL")
    return copy


@pytest.fixture
def mlruns(empty_store: Path, tmp_path: Path) -> Path:
    """A folder with an empty store."""
    folder = tmp_path / "mlruns"
    folder.mkdir()
    (folder / "mlflow.db").write_bytes(empty_store.read_bytes())
    return folder


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A settings file's content: four rounds of two clients on the digits."""
    return {
        "data": {"name": "digits", "root": str(tmp_path_factory.mktemp("data"))},
        "scenario": {"name": "static", "rounds": 4, "num_clients": 2},
        "model": "softmax_regression",
        "local": {"steps": 1, "batch_size": 256},
        "engine": {"workers": 1},
        "checkpoint": {"every": 2},
    }


@pytest.fixture
def settings(raw: dict[str, Any]) -> Callable[..., RunSettings]:
    """Settings of a tiny run; keywords replace top-level keys."""
    return lambda **values: Params({**raw, **values}).run()
