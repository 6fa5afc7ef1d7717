"""A run in MLflow: its rounds while it trains, all of its records at the end."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fedtide.core import lightning as L
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.lightning.callbacks import RoundBatches
from fedtide.runs.mlflow.mlflow_run import MlflowRun
from fedtide.runs.mlflow.store import reason
from fedtide.runs.mlflow.upload import open_run, upload
from fedtide.runs.workspace import Workspace
from fedtide.world.dataset import Dataset


class MlflowRounds(RoundBatches):
    """Sends rounds to MLflow, and the records when the run has ended.

    After its first failure, which is logged in one line, no round is sent; the end tries again, from the records.

    Args:
        workspace: has a place in MLflow. data: the run's dataset, for its model. log: gets a line for each failure.
    """

    def __init__(
        self, workspace: Workspace, directory: RunDirectory, data: Dataset, log: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._workspace, self._directory, self._data, self._log = workspace, directory, data, log
        self._run: MlflowRun | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the run as running, with the rounds that earlier processes have recorded."""
        self._try(self._begin)

    def send(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._run is not None:
            self._try(partial(self._run.add, rows))

    def end(self) -> None:
        """Upload the records, however the run has ended; called while no other process can work on it."""
        upload(self._workspace, self._directory, self._data, self._log, self._run)

    def _begin(self) -> None:
        run = open_run(self._workspace, self._directory)
        run.begin(self._workspace.comparison)
        self._run = run
        self.flush()

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
            self._log(f"MLflow: {self._workspace.mlruns}: {reason(error)}; training continues without it")
            self._run = None
