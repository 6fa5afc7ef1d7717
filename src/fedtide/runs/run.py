"""One run with its records: returned at once if finished, executed otherwise."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import naming_plugins
from fedtide.mirror.folder import has_open_runs
from fedtide.mirror.workspace import Workspace
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.identity import run_key
from fedtide.runs.jobs.launch import Decision, global_rank
from fedtide.runs.progress import NO_DISPLAY, Display, title
from fedtide.settings.run import RunSettings, plain_name
from fedtide.worlds.prepared import load_data

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
    display: Display = NO_DISPLAY,
    expected: str | None = None,
) -> dict[str, Any]:
    """The summary of a run, mirrored into MLflow where the workspace says so.

    Neither Lightning nor MLflow is imported for a finished run. Arguments, result and errors as
    :func:`fedtide.runs.execution.execute`; ``display`` shows the rounds.

    Args:
        expected: run key that another process has found; None to accept any.

    Raises:
        SettingsError: also if the key is another one here, since code or data differ.
        PluginCrash: a user's plug-in raised an exception.
    """
    with ExitStack() as visiting:
        visiting.enter_context(naming_plugins())  # here: an exception loses its traceback on the way out of a process
        decision = visiting.enter_context(Decision(settings))
        if workspace.visit is not None:
            visit = workspace.visit(settings, workspace.runs / plain_name(name or expected or ""), callbacks)
            settings, callbacks = visiting.enter_context(visit)
        return _run(settings, workspace, name, log, update, wait, callbacks, display, decision, expected)


def _run(
    settings: RunSettings,
    workspace: Workspace,
    name: str | None,
    log: Callable[[str], None],
    update: Callable[[str], None] | None,
    wait: bool,
    callbacks: Sequence[L.Callback],
    display: Display,
    decision: Decision,
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
    if global_rank() > 0:
        display = NO_DISPLAY
        if not decision.wait():
            return {"state": "follower"}
    elif (done := directory.finished(key)) is not None:
        log(f"{directory.path.name}: already {done['state']}, nothing to do")
        correct_mirror(workspace, log)
        return done
    from fedtide.runs.execution import execute  # with Lightning, which takes seconds to import

    common: dict[str, Any] = {"name": name, "worlds": workspace.worlds, "update": update, "log": log, "wait": wait}
    common |= {"callbacks": callbacks, "loggers": workspace.loggers, "data": data}
    common["begin"] = lambda: decision.announce(True)
    display.begin(title(settings), [directory.path])
    try:
        if workspace.mlruns is None:
            return execute(settings, workspace.runs, **common)
        from fedtide.mirror.background import tracker

        return execute(settings, workspace.runs, tracker=tracker(workspace, data, log), **common)
    finally:
        display.end(title(settings))
        gc.collect()  # trainer, module and data form a cycle that would keep the data of past runs in memory


def correct_mirror(workspace: Workspace, log: Callable[[str], None]) -> None:
    """Tell MLflow how runs have ended whose process was killed before it could."""
    if isinstance(workspace.mlruns, Path) and has_open_runs(workspace.mlruns):
        from fedtide.mirror.mlflow import correct_all

        correct_all(workspace.mlruns, log)
