"""MLflow's store in a folder of this machine: an SQLite file, and a folder of artifacts."""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import replacing

DATABASE = "mlflow.db"

_PATIENCE = 5.0  # seconds to wait for a database that another process holds


def artifacts(root: Path) -> str:
    """Where a store has its artifacts; the address is absolute, so moving the folder breaks the links to them."""
    return (root / "artifacts").as_uri()


def open_store(root: Path) -> str:
    """Tracking URI of the store in an absolute folder, created if missing; call it under a lock.

    Raises:
        sqlite3.Error, OSError: it is locked, unwritable or damaged, which MLflow itself would try again for minutes.
    """
    database = root / DATABASE
    if not database.exists():
        create(database)
    with closing(sqlite3.connect(database, timeout=_PATIENCE, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    return _address(root)


def create(database: Path) -> None:
    """Make a database with MLflow's tables, which appears when it is complete.

    Readers and a writer do not wait for each other in it.
    """
    from mlflow import MlflowClient
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    with replacing(database, durable=True) as part, tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / DATABASE
        event.listen(Engine, "connect", _without_sync)  # each of many migrations would wait for the disk
        try:
            MlflowClient(tracking_uri=f"sqlite:///{new}").search_experiments()
        finally:
            event.remove(Engine, "connect", _without_sync)
        shutil.copyfile(new, part)  # a file of its own: MLflow keeps the other one open
        with closing(sqlite3.connect(part)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")


def _without_sync(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def _address(root: Path) -> str:
    return f"sqlite:///{root / DATABASE}"


def ui_command(mlruns: Path, host: str = "127.0.0.1", port: int = 5000) -> tuple[list[str], dict[str, str]]:
    """Command, and variables of its environment, of MLflow's UI with two processes instead of ten.

    A folder without a store is a SettingsError.
    """
    root = mlruns.resolve()
    if not (root / DATABASE).is_file():
        raise SettingsError(
            f"{mlruns}: no MLflow store in this folder; execute a run first, or rebuild it with `fedtide mlflow sync`"
        )
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", _address(root), "--workers", "1"]
    command += ["--host", host, "--port", str(port)]
    return command, {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONSAFEPATH": "1",  # no module of the current folder in place of a library's
    }
