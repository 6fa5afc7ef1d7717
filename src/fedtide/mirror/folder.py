"""MLflow's store in a folder of this machine: an SQLite file, and a folder of artifacts."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from fedtide.core.errors import SettingsError
from fedtide.core.files import replacing

_DATABASE = "mlflow.db"
_PATIENCE = 5.0  # seconds to wait for a database that another process holds


@dataclass(frozen=True)
class Folder:
    """An absolute folder with a store.

    Only one process at a time creates the database (several would corrupt it), under a temporary name, so that a killed one
    leaves no partial file. Artifact addresses are absolute: moving the folder breaks their links.
    """

    root: Path

    @property
    def artifacts(self) -> str:
        return (self.root / "artifacts").as_uri()

    @property
    def tags(self) -> Mapping[str, str]:
        return {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from creating anything here."""
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(str(self.root / ".lock"), timeout=60):
            yield

    def open(self) -> str:
        """Tracking URI of the store, created if missing; under the lock.

        Raises:
            sqlite3.Error, OSError: it is locked, unwritable or damaged.
        """
        database = self.root / _DATABASE
        if not database.exists():
            _create(database, self.artifacts)
        _check_usable(database)
        return address(self.root)


def address(root: Path) -> str:
    """Tracking URI of the store in an absolute folder."""
    return f"sqlite:///{root / _DATABASE}"


def _create(database: Path, artifacts: str) -> None:
    """A new database with MLflow's tables, in the mode in which readers and a writer do not wait for each other."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    with replacing(database, durable=True) as part:
        event.listen(Engine, "connect", _without_sync)  # each of many migrations would wait for the disk
        try:
            SqlAlchemyStore(f"sqlite:///{part}", artifacts).engine.dispose()  # type: ignore[no-untyped-call]
        finally:
            event.remove(Engine, "connect", _without_sync)
        with closing(sqlite3.connect(part)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")


def _without_sync(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def _check_usable(database: Path) -> None:
    """Fail early: MLflow itself retries for most of an hour to open a damaged or locked database."""
    with closing(sqlite3.connect(database, timeout=_PATIENCE, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def has_open_runs(mlruns: Path) -> bool:
    """Whether MLflow shows a run as running."""
    return _holds(mlruns, "SELECT 1 FROM runs WHERE status = 'RUNNING' LIMIT 1")


def has_parent(mlruns: Path, name: str) -> bool:
    """Whether there is a parent run of a comparison or search."""
    return _holds(mlruns, "SELECT 1 FROM tags WHERE key = 'comparison' AND value = ? LIMIT 1", name)


def _holds(mlruns: Path, query: str, *values: str) -> bool:
    """Whether a query finds a row; it looks into the database itself, since MLflow takes seconds to import."""
    database = mlruns / _DATABASE
    if not database.is_file():
        return False
    try:
        with closing(sqlite3.connect(database, timeout=_PATIENCE)) as connection:
            return connection.execute(query, values).fetchone() is not None
    except sqlite3.Error:  # the next process that writes to the store reports the error
        return False


def ui_command(mlruns: Path, host: str = "127.0.0.1", port: int = 5000) -> tuple[list[str], dict[str, str]]:
    """Command, and variables of its environment, of MLflow's UI with two processes instead of ten.

    A folder without a store is a SettingsError.
    """
    root = mlruns.resolve()
    if not (root / _DATABASE).is_file():
        raise SettingsError(f"{mlruns}: no MLflow store here; run something first, or rebuild it with `fedtide mirror`")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", address(root), "--workers", "1"]
    command += ["--host", host, "--port", str(port)]
    return command, {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONSAFEPATH": "1",  # no module of the current folder in place of a library's
    }
