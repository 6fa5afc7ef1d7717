"""The mirror of runs in MLflow: updated during a run, and rebuilt from run directories at any time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.mirror.mlflow_run import MlflowRun, draw_timeline, outcome_of, status_of
from fedtide.mirror.server import Server, is_silence
from fedtide.mirror.store import Store, claimed, reason
from fedtide.mirror.workspace import RECORDS_ONLY, MlflowOptions
from fedtide.records.run_directory import RunDirectory, read_json
from fedtide.world.dataset import Dataset

GAP = "training continues, `fedtide mirror` fills the gap later"


class MlflowMirror:
    """Mirrors one run into MLflow, as a :class:`fedtide.runs.callbacks.Tracker`.

    Failures never stop the run: the first is logged, and mirroring ends.

    Args:
        where: folder of the store, or a server; for that, see :class:`fedtide.mirror.background.BackgroundMirror`.
        experiment: MLflow's. parent: name of the comparison or search that the run belongs to; empty for none.
        log: gets the remark. data: of the run, for the picture of its timeline and for its model; None for neither.
        options: what else is logged.
    """

    def __init__(
        self,
        where: Path | Server,
        experiment: str,
        parent: str = "",
        log: Callable[[str], None] = lambda _: None,
        data: Dataset | None = None,
        options: MlflowOptions = RECORDS_ONLY,
    ) -> None:
        self.where, self.experiment, self.parent, self.log = where, experiment, parent, log
        self.data, self.options = data, options
        self._run: MlflowRun | None = None
        self._monitor: Any = None

    def begin(self, directory: RunDirectory) -> None:
        """Start or continue the MLflow run of a run directory, and correct the runs of killed processes."""
        self._try(lambda: self.open(directory))

    def log_round(self, row: dict[str, Any]) -> None:
        self._with_run(lambda run: run.add([row]))

    def end(self) -> None:
        """Log files, figures, model and outcome, however the run ended."""
        self._with_run(self.close)

    def open(self, directory: RunDirectory) -> MlflowRun:
        """:meth:`begin`, but failures are raised."""
        store = Store(self.where, self.experiment)
        correct(store, self.log)
        run = MlflowRun(store, directory)
        run.open(self.parent, self.data)
        run.add(directory.history())
        if self.options.system_metrics:
            self._watch_system(store, run)
        self._run = run
        return run

    def close(self, run: MlflowRun) -> None:
        """:meth:`end`, but failures are raised."""
        self.abandon()
        if self.data is not None and outcome_of(run.directory) == "complete":
            draw_timeline(run.directory.path, self.data)
        run.end(self.options, self.data)

    def abandon(self) -> None:
        """Stop logging."""
        self._run = None
        if self._monitor is not None:
            self._monitor.finish()
            self._monitor = None

    def _watch_system(self, store: Store, run: MlflowRun) -> None:
        """Log system metrics in a thread of MLflow's, every ten seconds unless its environment variables differ."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        monitor: Any = SystemMetricsMonitor
        self._monitor = monitor(run.name, resume_logging=True, tracking_uri=store.uri)
        self._monitor.start()

    def _with_run(self, action: Callable[[MlflowRun], None]) -> None:
        if self._run is not None:
            self._try(functools.partial(action, self._run))

    def _try(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
            self.log(f"MLflow: {reason(error)}; {GAP}")
            self.abandon()


def mirror(
    run_dirs: Sequence[Path],
    where: Path | Server,
    experiment: str,
    log: Callable[[str], None] = lambda _: None,
    parent: str = "",
    options: MlflowOptions = RECORDS_ONLY,
    data: Callable[[RunDirectory], Dataset | None] = lambda _: None,
) -> int:
    """Bring MLflow up to date with run directories: create missing runs, complete partial ones.

    Args:
        run_dirs: the directories; those in use by a process, or without a run, are skipped.
        where: folder of the store, or a server. experiment: MLflow's. options: whether it should have the models, too.
        log: gets one line at the end, and one per directory that is skipped or left out.
        parent: name of the comparison for new runs; empty for none.
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
                log(f"{path.name}: skipped, no run directory")
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
                        run.write(parent, options, data(run.directory) if run.lacks_model(options) else None)
                        written += 1
                except SettingsError as error:  # of this run: the store raises none
                    log(f"{path.name}: left out, {error}")
                    left_out += 1
        correct(store, log)
    except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
        raise SettingsError(f"MLflow's store {_named(where)} cannot be used: {reason(error)}") from error
    log(f"MLflow: {written} runs written, {complete} up to date{f', {left_out} left out' if left_out else ''}")
    return left_out


def correct(store: Store, log: Callable[[str], None]) -> None:
    """Make MLflow agree with the run directories about all runs that it does not show as finished.

    A process may be killed between the last record of a run and its last call of MLflow, or before any of them. What a
    process works on is left alone.
    """
    for run in store.unfinished():
        try:
            _correct(store, run)
        except Exception as error:  # damaged records of one run
            if is_silence(error):
                raise
            log(f"MLflow: {run.info.run_name}: {reason(error)}")


def correct_all(where: Path | Server, log: Callable[[str], None]) -> None:
    """:func:`correct` a store; failures are logged."""
    try:
        correct(Store(where), log)
    except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
        log(f"MLflow: {reason(error)}")


def _correct(store: Store, run: Any) -> None:
    tags, shown = run.data.tags, run.info.status
    if "comparison" in tags:  # a parent is never in progress
        store.client.set_terminated(run.info.run_id)
    if "directory" not in tags:
        return
    directory = RunDirectory(Path(tags["directory"]))
    if (read_json(directory.path / "manifest.json") or {}).get("run_key") != tags.get("run_key"):
        if shown == "RUNNING":  # its directory is gone
            store.client.set_tag(run.info.run_id, "outcome", "killed")
            store.client.set_terminated(run.info.run_id, "KILLED")
        return
    if shown == status_of(tags.get("outcome", "")) and tags.get("outcome") == outcome_of(directory):
        return
    with claimed(directory.path) as free:
        if free:
            found = MlflowRun(store, directory, run)
            found.add(directory.history())
            found.conclude() if directory.summary() is None else found.end()


def _named(where: Path | Server) -> str:
    return where.address if isinstance(where, Server) else str(where)
