"""Where runs and their mirrors are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedtide.settings.imported import Imported


@dataclass(frozen=True)
class Workspace:
    """Folders of runs, and their names in MLflow.

    Attributes:
        runs: run directories. worlds: timelines of the partition stage, or None.
        mlruns: MLflow's folder, or None for no mirror. experiment, comparison: names of the experiment and the parent run in
            MLflow. loggers: Lightning loggers of every run.
    """

    runs: Path
    worlds: Path | None = None
    mlruns: Path | None = None
    experiment: str = "fedtide"
    comparison: str = ""
    loggers: tuple[Imported, ...] = ()
