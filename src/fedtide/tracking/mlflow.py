"""The mirror of runs in MLflow: updated during a run, and rebuilt from run directories at any time."""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.core.files import write_bytes
from fedtide.settings.scores import Score, main_score
from fedtide.tracking.run_directory import RunDirectory, finite, read_json
from fedtide.tracking.store import Store, claimed, git_commit, reason, ui_command
from fedtide.world.timeline import Ints, Timeline

__all__ = ["MlflowMirror", "correct", "correct_all", "mirror", "ui_command"]

_MAX_VALUE = 250  # characters of a parameter's value
_MAX_METRICS = 1000  # per call, MLflow's limit
_MAX_PARAMS = 100  # per call, MLflow's limit
_EVERY_ROUND = "session"  # a metric that is finite in every round, so it tells which rounds are logged
_FILES = ("settings.json", "history.csv", "per_class.csv", "timeline.png", "model.pt")

_PICTURES: dict[tuple[str, str], bytes] = {}
"""Pictures by what they show: digests of the timeline and of the labels."""


class MlflowMirror:
    """Mirrors one run into MLflow, as a :class:`fedtide.runs.callbacks.Tracker`.

    Failures never stop the run: the first is logged, and mirroring ends.

    Args:
        mlruns: folder of the store.
        experiment: MLflow's experiment.
        parent: name of the comparison or search that the run belongs to; empty for none.
        log: gets the remark.
        labels: of the training samples, to draw the timeline of a complete run; None for no picture.
    """

    def __init__(
        self,
        mlruns: Path,
        experiment: str,
        parent: str = "",
        log: Callable[[str], None] = lambda _: None,
        labels: Ints | None = None,
    ) -> None:
        self.mlruns, self.experiment, self.parent, self.log, self.labels = mlruns, experiment, parent, log, labels
        self._run: _MlflowRun | None = None

    def begin(self, directory: RunDirectory) -> None:
        """Start or continue the MLflow run of a run directory, and correct the runs of killed processes."""
        self._try(lambda: self._begin(directory))

    def log_round(self, row: dict[str, Any]) -> None:
        """Log the round."""
        self._with_run(lambda run: run.add([row]))

    def end(self) -> None:
        """Log files, figures and outcome, however the run ended."""
        self._with_run(self._end)

    def _end(self, run: _MlflowRun) -> None:
        if self.labels is not None and _outcome(run.directory) == "complete":
            _draw_timeline(run.directory.path, self.labels)
        run.end()

    def _begin(self, directory: RunDirectory) -> None:
        store = Store(self.mlruns, self.experiment)
        correct(store, self.log)
        self._run = _MlflowRun(store, directory)
        self._run.open(self.parent)
        self._run.add(directory.history())

    def _with_run(self, action: Callable[[_MlflowRun], None]) -> None:
        if self._run is not None:
            self._try(functools.partial(action, self._run))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
            self._run = None
            self.log(f"MLflow: {reason(error)}; training continues, `fedtide mirror` fills the gap later")


class _MlflowRun:
    """The MLflow run of a run directory: given, found by run key and name, or created."""

    def __init__(self, store: Store, directory: RunDirectory, run: Any = None) -> None:
        self.directory, self._client, self._store = directory, store.client, store
        self._facts = read_json(directory.path / "manifest.json") or {}
        if run is None:
            name, key = directory.path.name, self._facts.get("run_key")
            run = next(iter(store.runs(f"tags.run_key = '{key}' and attributes.run_name = '{name}'")), None)
        self._run: Any = run
        self._rounds: set[int] = set()
        if run is not None:
            self._rounds = {item.step for item in self._client.get_metric_history(self._id, _EVERY_ROUND)}

    @property
    def _id(self) -> str:
        return str(self._run.info.run_id)

    def is_complete(self) -> bool:
        """Whether MLflow has every round and the outcome."""
        return (
            self._run is not None
            and self._run.data.tags.get("outcome") == _outcome(self.directory)
            and self._run.info.status != "RUNNING"
            and self._rounds.issuperset(int(row["round"]) for row in self.directory.history())
        )

    def open(self, parent: str) -> None:
        """Mark the run as running and log its settings and tags; create it below ``parent`` if it is new."""
        from mlflow.entities import Param, RunTag

        tags = self._tags()
        if self._run is None:
            if parent:
                tags["mlflow.parentRunId"] = self._store.parent(parent)
            self._run = self._client.create_run(self._store.experiment, run_name=self.directory.path.name, tags=tags)
        else:
            self._client.update_run(self._id, status="RUNNING")
            self._client.log_batch(self._id, tags=[RunTag(key, value) for key, value in tags.items()])
        settings = read_json(self.directory.path / "settings.json") or {}
        params = [Param(key, value) for key, value in _flat(settings)]
        for start in range(0, len(params), _MAX_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + _MAX_PARAMS])

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Log the missing rounds in as few calls as possible, each round within one call."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        block: list[Any] = []
        for row in rows:
            step = int(row["round"])
            if step in self._rounds:
                continue
            metrics = [Metric(key, value, now, step) for key, value in finite(row)]
            if len(block) + len(metrics) > _MAX_METRICS:
                self._client.log_batch(self._id, metrics=block)
                block = []
            block += metrics
            self._rounds.add(step)
        if block:
            self._client.log_batch(self._id, metrics=block)

    def end(self) -> None:
        """Log files, figures and the outcome."""
        for path in (self.directory.path / name for name in _FILES):
            if path.is_file():
                self._client.log_artifact(self._id, str(path))
        with tempfile.TemporaryDirectory() as folder:
            main = main_score(self._facts.get("task", "classification"))
            picture = Path(folder) / f"{main.name}.png"
            if _draw_score(self.directory.history(), main, picture):
                self._client.log_artifact(self._id, str(picture))
        self.conclude()

    def conclude(self) -> None:
        """Log the outcome."""
        outcome = _outcome(self.directory)
        self._client.set_tag(self._id, "outcome", outcome)
        self._client.set_terminated(self._id, _status(outcome))

    def _tags(self) -> dict[str, str]:
        facts = self._facts
        tags = {"outcome": "running", "directory": str(self.directory.path.resolve()), "algorithm": facts["label"]}
        tags |= {key: str(facts[key]) for key in ("initialiser", "scenario", "dataset", "seed", "run_key")}
        commit = git_commit()
        return {**tags, "git_commit": commit} if commit else tags


def mirror(
    run_dirs: Sequence[Path],
    mlruns: Path,
    experiment: str,
    log: Callable[[str], None] = lambda _: None,
    parent: str = "",
) -> None:
    """Bring MLflow up to date with run directories: create missing runs, complete partial ones.

    Args:
        run_dirs: the directories; those in use by a process, or without a run, are skipped.
        mlruns: folder of the store.
        experiment: MLflow's experiment.
        log: gets one line at the end, and one per skipped directory.
        parent: name of the comparison for new runs; empty for none.

    Raises:
        SettingsError: the store cannot be used.
    """
    complete = written = 0
    try:
        store = Store(mlruns, experiment)
        for path in run_dirs:
            if not (path / "manifest.json").is_file():
                log(f"{path.name}: skipped, no run directory")
                continue
            with claimed(path) as free:
                if not free:
                    log(f"{path.name}: skipped, in use by another process")
                    continue
                try:
                    history = RunDirectory(path).history()
                except SettingsError as error:
                    log(f"{path.name}: skipped, {error}")
                    continue
                run = _MlflowRun(store, RunDirectory(path))
                if run.is_complete():
                    complete += 1
                else:
                    run.open(parent)
                    run.add(history)
                    run.end()
                    written += 1
        correct(store, log)
    except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
        raise SettingsError(f"MLflow's store {mlruns} cannot be used: {reason(error)}") from error
    log(f"MLflow: {written} runs written, {complete} up to date")


def correct(store: Store, log: Callable[[str], None]) -> None:
    """Make MLflow agree with the run directories about all runs that it does not show as finished.

    A process may be killed between the last record of a run and its last call of MLflow, or before any of them. What a
    process works on is left alone.
    """
    for run in store.unfinished():
        try:
            _correct(store, run)
        except Exception as error:  # damaged records of one run
            log(f"MLflow: {run.info.run_name}: {reason(error)}")


def correct_all(mlruns: Path, log: Callable[[str], None]) -> None:
    """:func:`correct` the store in a folder; failures are logged."""
    try:
        correct(Store(mlruns), log)
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
    if shown == _status(tags.get("outcome", "")) and tags.get("outcome") == _outcome(directory):
        return
    with claimed(directory.path) as free:
        if free:
            found = _MlflowRun(store, directory, run)
            found.add(directory.history())
            found.conclude() if directory.summary() is None else found.end()


def _status(outcome: str) -> str:
    """MLflow's status of a run that is not in progress."""
    return {"complete": "FINISHED", "pruned": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}.get(
        outcome, "KILLED"
    )


def _outcome(directory: RunDirectory) -> str:
    """Outcome of a run that is not in progress, from its directory.

    The state in its summary, else ``failed`` if an exception ended it, ``interrupted`` if its last event is that, or
    ``killed``.
    """
    summary, facts = directory.summary(), read_json(directory.path / "manifest.json") or {}
    if summary is not None and summary.get("run_key") == facts.get("run_key"):
        return str(summary["state"])
    if directory.error.is_file():
        return "failed"
    log = directory.path / "events.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    return "interrupted" if lines and '"event": "interrupted"' in lines[-1] else "killed"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted keys and values short enough for MLflow."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, (value if isinstance(value, str) else json.dumps(value))[:_MAX_VALUE]


def _draw_timeline(folder: Path, labels: Ints) -> None:
    """The picture of a run's timeline; runs of one process often share theirs, so it is drawn once."""
    from fedtide.world.picture import draw

    path, timeline = folder / "timeline.png", Timeline.load(folder / "timeline.npz")
    if path.is_file():
        return
    shown = timeline.digest, hashlib.sha256(labels.tobytes()).hexdigest()
    known = _PICTURES.get(shown)
    if known is None:
        draw(timeline, labels, path)
        _PICTURES[shown] = path.read_bytes()
    else:
        write_bytes(path, known)


def _draw_score(history: Sequence[Mapping[str, str]], score: Score, path: Path) -> bool:
    """Draw the accuracies, or another score, over the rounds as a PNG; False if there are none."""
    from matplotlib.figure import Figure

    columns = [column for column in (history[0] if history else ()) if column.endswith(f"_{score.name}")]
    curves = {column: [(int(row["round"]), float(row[column])) for row in history if row[column]] for column in columns}
    curves = {column: points for column, points in curves.items() if points}
    if not curves:
        return False
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for column, points in curves.items():
        axes.plot(*zip(*points, strict=True), label=column.replace(score.name, score.words).replace("_", " "))
    axes.set(xlabel="round", ylabel=score.words)
    if score.share:
        axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)
    return True
