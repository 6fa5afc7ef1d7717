"""An experiment in MLflow's store, used without MLflow's global state."""

from __future__ import annotations

import functools
import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtide.core.locks import Lock
from fedtide.mirror.folder import Folder
from fedtide.mirror.server import Server, Unreachable, is_silence

EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",  # opens on its runs, not on traces of language models
    "mlflow.note.content": "Federated runs, a metric's step is a round. The parent of a comparison's runs holds its report.",
    "mlflow.experiment.primaryMetric.name": "test_accuracy",
    "mlflow.experiment.primaryMetric.greaterIsBetter": "True",
}
"""Tags of an experiment for MLflow's UI."""


class Store:
    """One experiment in the store of a folder or of a server, created if missing; MLflow's default always exists.

    Raises:
        sqlite3.Error, OSError, mlflow.exceptions.MlflowException: the store is locked, unwritable, damaged or out of reach.
    """

    def __init__(self, where: Path | Server, experiment: str = "Default") -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # we report errors ourselves, in one line
        self.place = where if isinstance(where, Server) else Folder(where.resolve())
        with self.place.locked():
            self.uri = self.place.open()
            self.client: Any = MlflowClient(tracking_uri=self.uri)
            self.experiment: str = self._experiment(experiment)

    def _experiment(self, name: str) -> str:
        if (found := self.client.get_experiment_by_name(name)) is None:
            try:
                return str(self.client.create_experiment(name, self.place.artifacts, EXPERIMENT_TAGS))
            except Exception:
                found = self.client.get_experiment_by_name(name)
                if found is None:  # not that a process on another machine was first
                    raise
        return str(found.experiment_id)

    def runs(self, condition: str) -> list[Any]:
        """Runs that match a filter in MLflow's search syntax, newest first."""
        return self._search([self.experiment], condition)

    def parent(self, name: str) -> str:
        """Id of the parent run of a comparison or search, created by the first process that asks for it."""
        with self.place.locked():
            if found := self.runs(f"tags.comparison = '{name}'"):
                return str(found[-1].info.run_id)
            run = self.client.create_run(self.experiment, run_name=name, tags={"comparison": name})
            self.client.set_terminated(run.info.run_id)
            return str(run.info.run_id)

    def unfinished(self) -> list[Any]:
        """Runs that MLflow does not show as finished: in progress, stopped, failed.

        In a folder those of all experiments, on a server only this machine's in this one.
        """
        if self.place.tags:
            own = "".join(f" and tags.{key} = '{value}'" for key, value in self.place.tags.items())
            return self.runs(f"attributes.status != 'FINISHED'{own}")
        experiments = [found.experiment_id for found in self.client.search_experiments()]
        return self._search(experiments, "attributes.status != 'FINISHED'")

    def _search(self, experiments: list[str], condition: str) -> list[Any]:
        found, token = [], None
        while token != "":
            page = self.client.search_runs(experiments, condition, page_token=token)
            found += list(page)
            token = page.token or ""
        return found


@contextmanager
def claimed(directory: Path) -> Iterator[bool]:
    """Hold a run directory inside the block; whether it is held, since no other process works on it."""
    lock = Lock(directory / ".lock")
    try:
        free = lock.acquire()
    except OSError:  # nobody can write there
        yield True
        return
    try:
        yield free
    finally:
        lock.release()


def is_held(directory: Path) -> bool:
    """Whether a process is working on a run directory."""
    if not (directory / ".lock").exists():
        return False
    with claimed(directory) as free:
        return not free


def reason(error: BaseException) -> str:
    """First line of the root cause (MLflow wraps SQLAlchemy, which wraps SQLite), or that a server does not answer."""
    if is_silence(error) and not isinstance(error, Unreachable):
        return "the server does not answer any more"
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
