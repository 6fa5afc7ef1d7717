"""MLflow's store on this machine: an SQLite file and a folder of artifacts, used without MLflow's global state."""

from __future__ import annotations

import functools
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedtide.core.errors import SettingsError
from fedtide.core.files import replacing
from fedtide.core.locks import is_held_elsewhere

_DATABASE = "mlflow.db"
_PATIENCE = 5.0  # seconds to wait for a database that another process holds


class Store:
    """One experiment in the store of a folder, created if missing.

    Only one process at a time creates a database (several would corrupt it), under a temporary name, so that a killed one
    leaves no partial file. Artifact addresses are absolute: moving the folder breaks their links.

    Args:
        mlruns: the folder.
        experiment: name of the experiment; MLflow's default always exists.

    Raises:
        sqlite3.Error, OSError, mlflow.exceptions.MlflowException: the store is locked, unwritable or damaged.
    """

    def __init__(self, mlruns: Path, experiment: str = "Default") -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # we report errors ourselves, in one line
        self.root = mlruns.resolve()
        self.root.mkdir(parents=True, exist_ok=True)
        with self.locked():
            database = self.root / _DATABASE
            if not database.exists():
                _create(database, self._artifacts)
            _check_usable(database)
            self.client: Any = MlflowClient(tracking_uri=address(self.root))
            found = self.client.get_experiment_by_name(experiment)
            self.experiment: str = (
                found.experiment_id if found else self.client.create_experiment(experiment, self._artifacts)
            )

    @property
    def _artifacts(self) -> str:
        return (self.root / "artifacts").as_uri()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from creating anything here."""
        with FileLock(str(self.root / ".lock"), timeout=60):
            yield

    def runs(self, condition: str) -> list[Any]:
        """Runs that match a filter in MLflow's search syntax, newest first."""
        return self._search([self.experiment], condition)

    def parent(self, name: str) -> str:
        """Id of the parent run of a comparison or search, created by the first process that asks for it."""
        with self.locked():
            found = self.runs(f"tags.comparison = '{name}'")
            if found:
                return str(found[0].info.run_id)
            run = self.client.create_run(self.experiment, run_name=name, tags={"comparison": name})
            self.client.set_terminated(run.info.run_id)
            return str(run.info.run_id)

    def unfinished(self) -> list[Any]:
        """Runs of all experiments that MLflow does not show as finished: in progress, stopped, failed."""
        experiments = [found.experiment_id for found in self.client.search_experiments()]
        return self._search(experiments, "attributes.status != 'FINISHED'")

    def _search(self, experiments: list[str], condition: str) -> list[Any]:
        found, token = [], None
        while token != "":
            page = self.client.search_runs(experiments, condition, page_token=token)
            found += list(page)
            token = page.token or ""
        return found


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


@contextmanager
def claimed(directory: Path) -> Iterator[bool]:
    """Hold a run directory inside the block; whether it is held, since no other process works on it."""
    lock = FileLock(str(directory / ".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    except OSError:  # nobody can write there
        yield True
        return
    try:
        yield not is_held_elsewhere(directory / ".lock")
    finally:
        lock.release()


def is_held(directory: Path) -> bool:
    """Whether a process is working on a run directory."""
    if not (directory / ".lock").exists():
        return False
    with claimed(directory) as free:
        return not free


def has_open_runs(mlruns: Path) -> bool:
    """Whether MLflow shows a run as running; looks into the database itself, since MLflow takes seconds to import."""
    database = mlruns / _DATABASE
    if not database.is_file():
        return False
    try:
        with closing(sqlite3.connect(database, timeout=_PATIENCE)) as connection:
            found = connection.execute("SELECT 1 FROM runs WHERE status = 'RUNNING' LIMIT 1").fetchone()
    except sqlite3.Error:  # the next process that writes to the store says what is wrong with it
        return False
    return found is not None


def reason(error: BaseException) -> str:
    """First line of the root cause: MLflow wraps SQLAlchemy, which wraps SQLite."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0]


@functools.cache
def git_commit() -> str | None:
    """Commit of the working directory, with ``-dirty`` for uncommitted changes; ``None`` without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def ui_command(mlruns: Path, host: str = "127.0.0.1", port: int = 5000) -> tuple[list[str], dict[str, str]]:
    """MLflow's UI with one worker and without its job queues: two processes instead of ten.

    Returns:
        The command, and variables to add to its environment.

    Raises:
        SettingsError: there is no store in the folder.
    """
    root = mlruns.resolve()
    if not (root / _DATABASE).is_file():
        raise SettingsError(f"{mlruns}: no MLflow store here; run something first, or rebuild it with `fedtide mirror`")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", address(root), "--workers", "1"]
    command += ["--host", host, "--port", str(port)]
    return command, {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
