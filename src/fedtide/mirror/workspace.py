"""Where runs and their mirrors are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedtide.core.extras import require
from fedtide.mirror.server import Server
from fedtide.settings.experiment import TrackingSettings
from fedtide.settings.imported import Imported


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
