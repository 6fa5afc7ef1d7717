"""One run with its records: returned at once if finished, executed otherwise."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtide.core.plugins import naming_plugins
from fedtide.runs.identity import run_key
from fedtide.settings.run import RunSettings, plain_name
from fedtide.tracking.folder import has_open_runs
from fedtide.tracking.run_directory import RunDirectory
from fedtide.tracking.workspace import Workspace
from fedtide.world.prepared import load_data

if TYPE_CHECKING:
    import lightning as L


def run(
    settings: RunSettings,
    workspace: Workspace,
    *,
    name: str | None = None,
    log: Callable[[str], None] = lambda _: None,
    update: Callable[[str], None] | None = None,
    wait: bool = False,
    callbacks: Sequence[L.Callback] = (),
) -> dict[str, Any]:
    """The summary of a run, mirrored into MLflow where the workspace says so.

    Neither Lightning nor MLflow is imported for a finished run. Arguments, result and errors as
    :func:`fedtide.runs.execution.execute`.

    Raises:
        PluginCrash: a user's plug-in raised an exception.
    """
    with naming_plugins():  # here, since an exception loses its traceback on the way out of a worker process
        return _run(settings, workspace, name, log, update, wait, callbacks)


def _run(
    settings: RunSettings,
    workspace: Workspace,
    name: str | None,
    log: Callable[[str], None],
    update: Callable[[str], None] | None,
    wait: bool,
    callbacks: Sequence[L.Callback],
) -> dict[str, Any]:
    data = load_data(settings)
    key = run_key(settings, data)
    directory = RunDirectory(workspace.runs / plain_name(name or key))
    leads = int(os.environ.get("LOCAL_RANK", "0")) == 0
    if leads and (done := directory.finished(key)) is not None:
        log(f"{directory.path.name}: already {done['state']}, nothing to do")
        correct_mirror(workspace, log)
        return done
    from fedtide.runs.execution import execute  # with Lightning, which takes seconds to import

    common: dict[str, Any] = {"name": name, "worlds": workspace.worlds, "update": update, "log": log, "wait": wait}
    try:
        if workspace.mlruns is None:
            return execute(settings, workspace.runs, callbacks=callbacks, data=data, **common)
        from fedtide.tracking.background import tracker

        return execute(
            settings, workspace.runs, callbacks=callbacks, tracker=tracker(workspace, data, log), data=data, **common
        )
    finally:
        gc.collect()  # trainer, module and data form a cycle that would keep the data of past runs in memory


def correct_mirror(workspace: Workspace, log: Callable[[str], None]) -> None:
    """Tell MLflow how runs have ended whose process was killed before it could."""
    if isinstance(workspace.mlruns, Path) and has_open_runs(workspace.mlruns):
        from fedtide.tracking.mlflow import correct_all

        correct_all(workspace.mlruns, log)
