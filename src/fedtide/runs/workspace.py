"""Where runs and their mirrors are kept."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedtide.core.errors import without_credentials
from fedtide.core.extras import installation, missing, require
from fedtide.core.storage.files import short_hash
from fedtide.runs.mlflow.server import Server, place_of
from fedtide.runs.mlflow.store import reason
from fedtide.settings.experiment import TrackingSettings
from fedtide.settings.params import Params
from fedtide.settings.run import Imported


@dataclass(frozen=True)
class Workspace:
    """Folders of runs, and their names in MLflow.

    Attributes:
        runs: run directories. worlds: timelines of the timeline stage, or None.
        mlruns: MLflow's folder or SQLite file, an MLflow server, or None for no mirror. experiment, comparison: names of the
            experiment and the parent run in MLflow. model: whether final models go there, too. register: their name in the
            model registry.
        loggers: Lightning loggers of every run.
    """

    runs: Path
    worlds: Path | None = None
    mlruns: Path | Server | None = None
    experiment: str = "fedtide"
    comparison: str = ""
    model: bool = False
    register: str | None = None
    loggers: tuple[Imported, ...] = ()


def workspace(
    params: Params, runs: Path, worlds: Path | None, mlruns: str | Path | None, log: Callable[[str], None] | None = None
) -> Workspace:
    """The workspace of a comparison, which is named after the settings shared by its runs.

    Where MLflow is not installed, or has no such store, it has no place in MLflow, which is logged.

    Raises:
        SettingsError: MLflow is not installed, but settings name its server or a model to register.
    """
    tracking = params.experiment.tracking
    if tracking.mlflow and mlruns and missing("mlflow"):
        for key in ("uri", "register"):
            if getattr(tracking, key) is not None:
                require("mlflow", f"tracking.{key}")
        mlruns = None
        if log is not None:
            log(f"MLflow is not installed, so runs are not logged there; {installation('mlflow')}")
    shared = params.run().canonical()
    for key in ("algorithm", "initializer", "seed", "world_seed"):
        shared.pop(key)
    name = f"{shared['data']['name']} {shared['scenario']['name']} {short_hash(shared)}"
    where = mlflow_place(tracking, mlruns) if tracking.mlflow and mlruns else None
    if log is not None and isinstance(where, Server) and where.uri is not None:
        try:  # once, instead of in every run: a platform may have set it for others
            where.reach()
        except Exception as error:  # whatever MLflow, its plug-ins or SQLAlchemy may raise
            log(
                f"MLflow: {where}: {without_credentials(reason(error))}; runs are not logged there (see tracking.mlflow=false)"
            )
            where = None
    chosen = tracking.model, tracking.register, tracking.loggers
    return Workspace(runs, worlds, where, experiment_of(tracking), name, *chosen)


def mlflow_place(tracking: TrackingSettings, mlruns: str | Path) -> Path | Server:
    """MLflow's server if there is one in the settings, else what ``mlruns`` names."""
    return Server.at(tracking.uri) if tracking.uri else place_of(mlruns)


def experiment_of(tracking: TrackingSettings) -> str:
    """Name of the experiment in MLflow."""
    return tracking.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "fedtide"
