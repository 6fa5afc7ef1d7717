"""Run directories in MLflow: uploaded at the end of a run, and by ``fedtide mlflow sync`` at any time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.mlflow.mlflow_run import MlflowRun
from fedtide.runs.mlflow.server import Server
from fedtide.runs.mlflow.store import Store, claimed, reason
from fedtide.runs.workspace import RECORDS_ONLY, MlflowOptions, Workspace
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load_data


def open_run(workspace: Workspace, directory: RunDirectory) -> MlflowRun:
    """MLflow's run of a run directory of a workspace that has a place in MLflow."""
    assert workspace.mlruns is not None
    return MlflowRun(Store(workspace.mlruns, workspace.experiment), directory)


def upload(
    workspace: Workspace,
    directory: RunDirectory,
    data: Dataset,
    log: Callable[[str], None],
    run: MlflowRun | None = None,
) -> None:
    """Upload a run that is not in progress, with its dataset ``data``; a failure is logged in one line, never raised.

    ``run``: its MLflow run, if it is open already.
    """
    try:
        found = open_run(workspace, directory) if run is None else run
        found.upload(workspace.comparison, workspace.options, data)
    except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
        log(f"MLflow: {workspace.mlruns}: {reason(error)}; `fedtide mlflow sync` uploads the run later")


def upload_elsewhere(workspace: Workspace, settings: RunSettings, name: str, log: Callable[[str], None]) -> None:
    """:func:`upload` the run directory of this name that another machine has written, if it is free."""
    path = workspace.runs / name
    if workspace.mlruns is None or not (path / "manifest.json").is_file():  # it may have failed before it began
        return
    with claimed(path) as free:
        if free:  # otherwise its worker still saves it
            upload(workspace, RunDirectory(path), load_data(settings), log)


def mirror(
    run_dirs: Sequence[Path],
    where: Path | Server,
    experiment: str,
    log: Callable[[str], None] = lambda _: None,
    options: MlflowOptions = RECORDS_ONLY,
    data: Callable[[RunDirectory], Dataset | None] = lambda _: None,
) -> int:
    """Bring MLflow up to date with run directories: create missing runs, complete partial ones.

    Args:
        run_dirs: the directories; those in use by a process, or without a run, are skipped.
        where: folder of the store, or a server. experiment: MLflow's. options: whether it should have the models, too.
        log: gets one line at the end, and one per directory that is skipped or left out.
        data: the dataset of a run, or None if it is not at hand; asked only for a model.

    Returns:
        How many runs are left out, or lack their model, since their records are damaged or of another version.

    Raises:
        SettingsError: the store cannot be used.
    """
    complete = written = left_out = 0
    try:
        store = Store(where, experiment)
        for path in run_dirs:
            if not (path / "manifest.json").is_file():
                log(f"{path.name}: skipped, not a run directory")
                continue
            with claimed(path) as free:
                if not free:
                    log(f"{path.name}: skipped, in use by another process")
                    continue
                try:
                    run = MlflowRun(store, RunDirectory(path))
                    if run.is_complete(options):
                        complete += 1
                    else:
                        run.upload("", options, data(run.directory) if run.lacks_model(options) else None)
                        written += 1
                except SettingsError as error:  # of this run: the store raises none
                    log(f"{path.name}: not uploaded, {error}")
                    left_out += 1
    except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
        raise SettingsError(f"MLflow's store {where} cannot be used: {reason(error)}") from error
    log(f"MLflow: {written} runs written, {complete} up to date{f', {left_out} not uploaded' if left_out else ''}")
    return left_out
