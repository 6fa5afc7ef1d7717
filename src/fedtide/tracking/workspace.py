"""Where runs and their mirrors are kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Workspace:
    """Folders of runs, and their names in MLflow.

    Attributes:
        runs: run directories. worlds: timelines of the partition stage, or None.
        mlruns: MLflow's folder, or None for no mirror. experiment, comparison: names of the experiment and the parent run in
            MLflow.
        visit: brings a run directory and its data from another machine, and sends records back: a context manager of settings,
            folder and Lightning callbacks that gives settings and callbacks. None where ``runs`` is the place of the records.
    """

    runs: Path
    worlds: Path | None = None
    mlruns: Path | None = None
    experiment: str = "fedtide"
    comparison: str = ""
    visit: Callable[..., AbstractContextManager[Any]] | None = None
