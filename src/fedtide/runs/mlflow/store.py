"""An experiment in MLflow's store, used without MLflow's global state.

On this machine a store is an SQLite file in a folder, with a folder of artifacts beside it.
"""

import functools
import getpass
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from filelock import FileLock

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import replacing, short_hash
from fedtide.runs.mlflow.server import DATABASES, Server

DATABASE = "mlflow.db"

_PATIENCE = 5.0  # seconds to wait for a database that another process holds
_MOST = 50_000  # runs that a search returns, MLflow's limit


class Store:
    """One experiment in the store of a folder, an SQLite file or a server, created if missing.

    Several processes may open, and write to, one store at once.

    Raises:
        SettingsError: the experiment is deleted, or another version of MLflow made the store.
        sqlite3.Error, OSError, mlflow.exceptions.MlflowException: the store is locked, unwritable, damaged or out of reach.
    """

    def __init__(self, where: Path | Server, experiment: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        import mlflow
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # we report errors ourselves, in one line
        self.folder: Path | None = None
        if isinstance(where, Server):
            name = f"fedtide-{short_hash([getpass.getuser(), where.address])}.lock"
            self._lock = Path(tempfile.gettempdir()) / name
        else:
            self.folder = database_of(where).parent
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = self.folder / ".lock"
        with self._locked():
            self.uri = where.address if isinstance(where, Server) else open_store(database_of(where))
            try:
                self.client: Any = where.client() if isinstance(where, Server) else MlflowClient(tracking_uri=self.uri)
                self.experiment: str = self._experiment(experiment)
            except MlflowException as error:
                if "database schema" not in str(error):
                    raise
                raise SettingsError(
                    f"another version of MLflow than the installed {mlflow.__version__} made this store; if an older one, "
                    f"`mlflow db upgrade {self.uri}`, if a newer one, `pip install --upgrade mlflow`"
                ) from None

    def _locked(self) -> FileLock:
        """Keeps other processes of this machine and user from creating anything in the store."""
        return FileLock(self._lock, timeout=60)

    def _experiment(self, name: str) -> str:
        if (found := self.client.get_experiment_by_name(name)) is None:
            place = (self.folder / "artifacts").as_uri() if self.folder else None  # a server decides itself
            return str(self.client.create_experiment(name, place))
        if found.lifecycle_stage != "active":
            restore = f"mlflow experiments restore --experiment-id {found.experiment_id}"
            raise SettingsError(
                f"the experiment {name!r} is deleted; restore it with `MLFLOW_TRACKING_URI={self.uri} {restore}`, or set "
                "another tracking.experiment"
            )
        return str(found.experiment_id)

    def runs(self, condition: str) -> list[Any]:
        """Runs that match a filter in MLflow's search syntax, newest first."""
        return list(self.client.search_runs([self.experiment], condition, max_results=_MOST))

    def parent(self, name: str) -> str:
        """Id of the parent run of a comparison or search, created by the first process that asks for it."""
        with self._locked():
            if found := self.runs(f"tags.comparison = '{name}'"):
                run = found[-1]
            else:
                run = self.client.create_run(self.experiment, run_name=name, tags={"comparison": name})
            if run.info.status == "RUNNING":  # a parent is never in progress
                self.client.set_terminated(run.info.run_id)
        return str(run.info.run_id)


def reason(error: BaseException) -> str:
    """First line of the root cause: MLflow wraps SQLAlchemy, which wraps SQLite, or a library for HTTP."""
    while not isinstance(error, SettingsError) and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return (str(error).splitlines() or [type(error).__name__])[0]


@functools.cache
def git_commit() -> str | None:
    """Commit of the working directory, with ``-dirty`` for uncommitted changes; ``None`` without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def database_of(where: Path) -> Path:
    """The absolute path of the SQLite file of a store, which is named by its folder or by the file."""
    return (where if where.suffix in DATABASES and not where.is_dir() else where / DATABASE).resolve()


def open_store(database: Path) -> str:
    """Tracking URI of the store in an absolute path, created if missing; call it under a lock.

    Raises:
        sqlite3.Error, OSError: it is locked, unwritable or damaged, which MLflow itself would try again for minutes.
    """
    if not database.exists():
        create(database)
    with closing(sqlite3.connect(database, timeout=_PATIENCE, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    return address(database)


def address(database: Path) -> str:
    """The URI of a database for MLflow; an OSError if SQLAlchemy would take it for another path.

    The driver is named, since MLflow makes the folder of a plain ``sqlite:///``, whose path it does not unquote.
    """
    from sqlalchemy.engine import URL, make_url

    found = URL.create("sqlite+pysqlite", database=str(database)).render_as_string()
    if make_url(found).database != str(database):
        raise OSError(f"{database}: SQLAlchemy before 2.1 cannot open this path; update it, or rename the folder")
    return found


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
            MlflowClient(tracking_uri=address(new)).search_experiments()
        finally:
            event.remove(Engine, "connect", _without_sync)
        shutil.copyfile(new, part)  # a file of its own: MLflow keeps the other one open
        with closing(sqlite3.connect(part)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")


def _without_sync(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def ui_command(mlruns: Path, host: str = "127.0.0.1", port: int = 5000) -> tuple[list[str], dict[str, str]]:
    """Command, and variables of its environment, of MLflow's UI with two processes instead of ten.

    A folder without a store is a SettingsError.
    """
    database = database_of(mlruns)
    if not database.is_file():
        raise SettingsError(
            f"{mlruns}: no MLflow store in this folder; execute a run first, or rebuild it with `fedtide mlflow sync`"
        )
    place = ["--backend-store-uri", address(database), "--host", host, "--port", str(port)]
    return [sys.executable, "-m", "mlflow", "ui", *place, "--workers", "1"], {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONSAFEPATH": "1",  # no module of the current folder in place of a library's
    }
