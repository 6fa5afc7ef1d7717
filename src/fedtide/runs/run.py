"""One run with its records: returned at once if finished, executed otherwise."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import naming_plugins
from fedtide.runs.identity import run_key
from fedtide.settings.run import RunSettings, plain_name
from fedtide.tracking.run_directory import RunDirectory
from fedtide.tracking.store import has_open_runs
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
    expected: str | None = None,
) -> dict[str, Any]:
    """The summary of a run, mirrored into MLflow where the workspace has a folder for it.

    Neither Lightning nor MLflow is imported for a finished run. Arguments, result and errors as
    :func:`fedtide.runs.execution.execute`.

    Args:
        expected: run key that another process has found; None to accept any.

    Raises:
        SettingsError: also if the key is another one here, since code or data differ.
        PluginCrash: a user's plug-in raised an exception.
    """
    with (
        ExitStack() as visiting,
        naming_plugins(),
    ):  # an exception loses its traceback on the way out of a worker process
        if workspace.visit is not None:
            visit = workspace.visit(settings, workspace.runs / plain_name(name or expected or ""), callbacks)
            settings, callbacks = visiting.enter_context(visit)
        return _run(settings, workspace, name, log, update, wait, callbacks, expected)


def _run(
    settings: RunSettings,
    workspace: Workspace,
    name: str | None,
    log: Callable[[str], None],
    update: Callable[[str], None] | None,
    wait: bool,
    callbacks: Sequence[L.Callback],
    expected: str | None,
) -> dict[str, Any]:
    data = load_data(settings)
    key = run_key(settings, data)
    if expected not in (None, key):
        raise SettingsError(
            f"{socket.gethostname()}: code or data differ from those of the command: {expected} would be {key} there; "
            "install the same version, with the same plug-ins and packages"
        )
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
        from fedtide.tracking.mlflow import MlflowMirror

        labels = data.train_labels.cpu().numpy()
        mirror = MlflowMirror(workspace.mlruns, workspace.experiment, workspace.comparison, log, labels)
        return execute(settings, workspace.runs, callbacks=callbacks, tracker=mirror, data=data, **common)
    finally:
        gc.collect()  # trainer, module and data form a cycle that would keep the data of past runs in memory


def correct_mirror(workspace: Workspace, log: Callable[[str], None]) -> None:
    """Tell MLflow how runs have ended whose process was killed before it could."""
    if workspace.mlruns is not None and has_open_runs(workspace.mlruns):
        from fedtide.tracking.mlflow import correct_all

        correct_all(workspace.mlruns, log)
