"""The mirror of runs that a cluster executes: the command that hands them out updates it when they end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from fedtide.mirror.folder import has_open_runs
from fedtide.mirror.store import claimed
from fedtide.mirror.workspace import Workspace
from fedtide.records.run_directory import RunDirectory
from fedtide.settings.run import RunSettings
from fedtide.worlds.prepared import load_data


class Mirroring:
    """Mirrors run directories into MLflow, one after another in a thread, since that can take longer than a short run.

    Nothing is done if the workspace has no place in MLflow.
    """

    def __init__(self, workspace: Workspace, log: Callable[[str], None]) -> None:
        self._workspace, self._log = workspace, log
        self._thread = ThreadPoolExecutor(1, "mirror")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=kind is not None)

    def add(self, settings: RunSettings, name: str) -> None:
        if self._workspace.mlruns is not None:
            self._thread.submit(self._mirror, settings, self._workspace.runs / name)

    def _mirror(self, settings: RunSettings, path: Path) -> None:
        if not (path / "manifest.json").is_file():  # it failed before it began
            return
        from fedtide.mirror.mlflow import MlflowMirror

        where = self._workspace
        assert where.mlruns is not None
        data = load_data(settings)
        mirror = MlflowMirror(where.mlruns, where.experiment, where.comparison, self._log, data, where.options)
        with claimed(path) as free:
            if free:  # otherwise its worker still saves it
                mirror.begin(RunDirectory(path))
                mirror.end()


def correct_mirror(workspace: Workspace, log: Callable[[str], None]) -> None:
    """Tell MLflow how runs have ended whose process was killed before it could."""
    if isinstance(workspace.mlruns, Path) and has_open_runs(workspace.mlruns):
        from fedtide.mirror.mlflow import correct_all

        correct_all(workspace.mlruns, log)
