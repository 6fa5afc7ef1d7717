"""Where runs and their mirrors are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedtide.core.extras import missing, require
from fedtide.core.storage.files import folder, short_hash
from fedtide.runs.mlflow.server import Server
from fedtide.settings.experiment import TrackingSettings
from fedtide.settings.params import Params
from fedtide.settings.run import Imported


@dataclass(frozen=True)
class MlflowOptions:
    """What a run sends to MLflow besides its records: its final model, and a name to register that under."""

    model: bool = False
    register: str | None = None

    @classmethod
    def of(cls, tracking: TrackingSettings) -> Self:
        """Those of the settings."""
        return cls(tracking.model, tracking.register)


RECORDS_ONLY = MlflowOptions()


@dataclass(frozen=True)
class Workspace:
    """Folders of runs, and their names in MLflow.

    Attributes:
        runs: run directories. worlds: timelines of the partition stage, or None.
        mlruns: MLflow's folder, an MLflow server, or None for no mirror. experiment, comparison: names of the experiment and
            the parent run in MLflow. options: what else goes there. loggers: Lightning loggers of every run.
    """

    runs: Path
    worlds: Path | None = None
    mlruns: Path | Server | None = None
    experiment: str = "fedtide"
    comparison: str = ""
    options: MlflowOptions = RECORDS_ONLY
    loggers: tuple[Imported, ...] = ()

    @classmethod
    def of_script(cls, runs: Path, mlruns: str | Path | None, tracking: TrackingSettings) -> Self:
        """That of a script, with a folder of runs, which is made, and MLflow's folder or the address of its server."""
        runs.mkdir(parents=True, exist_ok=True)
        where: Path | Server | None = Path(mlruns).resolve() if mlruns else None
        if where is not None:
            require("mlflow", f"mlruns = {str(mlruns)!r}")
        if isinstance(mlruns, str) and mlruns.startswith(("http://", "https://")):
            where = Server.at(mlruns)
        return cls(runs, None, where, tracking.experiment, "", MlflowOptions.of(tracking), tracking.loggers)


def workspace(
    params: Params, runs: Path, worlds: Path | None, mlruns: Path | None, log: Callable[[str], None] | None = None
) -> Workspace:
    """The workspace of a comparison, which is named after the settings shared by its runs.

    Where MLflow is not installed it has no place in MLflow, which is logged.

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
            log("MLflow is not installed, so runs are not logged there; pip install 'fedtide[mlflow]'")
    shared = params.run().canonical()
    for key in ("algorithm", "initializer", "seed", "world_seed"):
        shared.pop(key)
    name = f"{shared['data']['name']} {shared['scenario']['name']} {short_hash(shared)}"
    where = mlflow_place(tracking, mlruns) if tracking.mlflow and mlruns else None
    return Workspace(
        folder(runs), worlds, where, tracking.experiment, name, MlflowOptions.of(tracking), tracking.loggers
    )


def mlflow_place(tracking: TrackingSettings, mlruns: Path) -> Path | Server:
    """MLflow's server if there is one in the settings, else its folder."""
    return Server.at(tracking.uri) if tracking.uri else mlruns
