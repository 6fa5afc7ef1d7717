"""Run directories in MLflow: uploaded at the end of a run, and by ``fedtide mlflow sync`` at any time."""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.storage.locks import claimed
from fedtide.records.run_directory import RunDirectory, read_json
from fedtide.runs.mlflow.mlflow_run import MlflowRun
from fedtide.runs.mlflow.server import Server
from fedtide.runs.mlflow.store import Store, reason
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import parse
from fedtide.settings.run import RunSettings
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load, load_data, prepared_file


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
        found.upload(workspace.comparison, data if workspace.model else None, workspace.register)
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
    models: Path | None = None,
    register: str | None = None,
) -> int:
    """Bring MLflow up to date with run directories: create missing runs, complete partial ones.

    Args:
        run_dirs: the directories; those in use by a process, or without a run, are skipped.
        where: folder of the store, or a server. experiment: MLflow's.
        log: gets one line at the end, and one per directory that is skipped or left out.
        models: folder of prepared datasets, if the final models should be there, too. register: their name, if any.

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
                    if run.is_complete(models is not None):
                        complete += 1
                    else:
                        data = stored_data(run.directory, models) if models and run.lacks_model else None
                        run.upload("", data, register)
                        written += 1
                except SettingsError as error:  # of this run: the store raises none
                    log(f"{path.name}: not uploaded, {error}")
                    left_out += 1
    except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
        raise SettingsError(f"MLflow's store {where} cannot be used: {reason(error)}") from error
    log(f"MLflow: {written} runs written, {complete} up to date{f', {left_out} not uploaded' if left_out else ''}")
    return left_out


def stored_data(directory: RunDirectory, root: Path) -> Dataset | None:
    """The dataset that a run was made with, ``None`` if it is not there, or is another one now; nothing is downloaded."""
    facts, settings = (read_json(directory.path / name) or {} for name in ("manifest.json", "settings.json"))
    found = _load(json.dumps(settings.get("data")), root)
    return found if found is not None and found.digest == facts.get("data") else None


@functools.lru_cache(maxsize=1)
def _load(chosen: str, root: Path) -> Dataset | None:
    try:
        values = json.loads(chosen)
        plugin_class = plugins.load(DatasetPlugin, values["name"])
        plugin = plugin_class(parse(plugin_class.Settings, {**values, "root": str(root)}))
        if plugin.resources and not prepared_file(plugin, root).is_file():
            return None
        return load(plugin, root)
    except (SettingsError, KeyError, TypeError, OSError):
        return None
