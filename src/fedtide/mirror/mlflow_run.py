"""The MLflow run of one run directory."""

from __future__ import annotations

import getpass
import hashlib
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.core.files import write_bytes
from fedtide.mirror.inputs import dataset_inputs
from fedtide.mirror.logged_model import log_model
from fedtide.mirror.store import Store, git_commit
from fedtide.mirror.workspace import RECORDS_ONLY, MlflowOptions
from fedtide.records.guarantees import PRIVACY
from fedtide.records.run_directory import ENCODING, MODEL, RunDirectory, finite, read_json
from fedtide.settings.scores import Score, main_score
from fedtide.world.concepts import seen_classes
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline

_MAX_VALUE = 250  # characters of a parameter's value
_MAX_METRICS = 1000  # per call, MLflow's limit
_MAX_PARAMS = 100  # per call, MLflow's limit
_EVERY_ROUND = "session"  # a metric that is finite in every round, so it tells which rounds are logged
_FILES = (
    "settings.json",
    "history.csv",
    "per_class.csv",
    "session_scores.csv",
    "timeline.png",
    ENCODING,
    PRIVACY,
    MODEL,
)
_MODEL = "model_id"  # tag: the final model in MLflow
_DATA = "data"  # tag: hash of the dataset that all is of

_PICTURES: dict[tuple[str, str], bytes] = {}  # pictures by what they show: digests of the timeline and of the labels


class MlflowRun:
    """The MLflow run of a run directory: given, found by run key and name, or created.

    When rows were appended to its table, rounds, means and the final model are logged again: MLflow shows the latest values.
    """

    def __init__(self, store: Store, directory: RunDirectory, run: Any = None) -> None:
        self.directory, self._client, self._store = directory, store.client, store
        self._facts = read_json(directory.path / "manifest.json") or {}
        if run is None:
            name, key = directory.path.name, self._facts.get("run_key")
            run = next(iter(store.runs(f"tags.run_key = '{key}' and attributes.run_name = '{name}'")), None)
        self._run: Any = run
        self._rounds: set[int] = set()
        self._outdated = run is not None and run.data.tags.get(_DATA, self._facts.get("data")) != self._facts.get(
            "data"
        )
        if run is not None and not self._outdated:
            self._rounds = {item.step for item in self._client.get_metric_history(self._id, _EVERY_ROUND)}

    @property
    def _id(self) -> str:
        return str(self._run.info.run_id)

    @property
    def name(self) -> str:
        """Id of the run in MLflow."""
        return self._id

    def is_complete(self, options: MlflowOptions = RECORDS_ONLY) -> bool:
        """Whether MLflow has every round, the outcome, and the model if it is wanted."""
        return (
            self._run is not None
            and self._run.data.tags.get("outcome") == outcome_of(self.directory)
            and self._run.info.status != "RUNNING"
            and self._rounds.issuperset(int(row["round"]) for row in self.directory.history())
            and not self.lacks_model(options)
        )

    def lacks_model(self, options: MlflowOptions) -> bool:
        """Whether the model is wanted, there is one, and MLflow does not have it."""
        known = self._run is not None and _MODEL in self._run.data.tags and not self._outdated
        return options.model and not known and outcome_of(self.directory) == "complete"

    def open(self, parent: str, data: Dataset | None = None) -> None:
        """Mark the run as running and log its settings, tags and dataset; create it below ``parent`` if it is new.

        ``data``: the dataset, if it is loaded.
        """
        from mlflow.entities import Param, RunTag

        tags, new = self._tags(), self._run is None
        if self._run is None:
            if parent:
                tags["mlflow.parentRunId"] = self._store.parent(parent)
            tags[_DATA] = self._facts.get("data", "")
            self._run = self._client.create_run(self._store.experiment, run_name=self.directory.path.name, tags=tags)
        else:
            self._client.update_run(self._id, status="RUNNING")
            self._client.log_batch(self._id, tags=[RunTag(key, value) for key, value in tags.items()])
        settings = read_json(self.directory.path / "settings.json") or {}
        params = [Param(key, value) for key, value in _flat(settings)]
        for start in range(0, len(params), _MAX_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + _MAX_PARAMS])
        if new or self._outdated:
            self._client.log_inputs(self._id, dataset_inputs(self._facts, settings, data))

    def write(self, parent: str, options: MlflowOptions, data: Dataset | None) -> None:
        """Log all of a run that is not in progress.

        Raises:
            SettingsError: its records are damaged, or no longer say what its model is; of the latter all else is logged.
        """
        history = self.directory.history()
        self.open(parent, data)
        self.add(history)
        try:
            self.end(options, data)
        except SettingsError as error:
            self.conclude()
            raise SettingsError(f"without its model: {error}") from None

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Log the missing rounds in as few calls as possible, each round within one call."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        block: list[Any] = []
        for row in rows:
            step = int(row["round"])
            if step in self._rounds:
                continue
            metrics = [Metric(key, value, now, step) for key, value in _ordered(row)]
            if len(block) + len(metrics) > _MAX_METRICS:
                self._client.log_batch(self._id, metrics=block)
                block = []
            block += metrics
            self._rounds.add(step)
        if block:
            self._client.log_batch(self._id, metrics=block)

    def end(self, options: MlflowOptions = RECORDS_ONLY, data: Dataset | None = None) -> None:
        """Log files, figures, the outcome, and the model if it is wanted and ``data``, the run's dataset, is at hand."""
        for path in (self.directory.path / name for name in _FILES):
            if path.is_file():
                self._client.log_artifact(self._id, str(path))
        with tempfile.TemporaryDirectory() as folder:
            main = main_score(self._facts.get("task", "classification"))
            picture = Path(folder) / f"{main.name}.png"
            if _draw_score(self.directory.history(), main, picture):
                self._client.log_artifact(self._id, str(picture))
        if data is not None and self.lacks_model(options):
            model = log_model(self._store, self._id, self.directory.path, data, options.register)
            self._client.set_tag(self._id, _MODEL, model)
        self._log_means()
        self._client.set_tag(
            self._id, _DATA, self._facts.get("data", "")
        )  # last: what comes before may not be complete
        self.conclude()

    def _log_means(self) -> None:
        """Log the means over the next periods and over the drifts, which only a complete run has."""
        from mlflow.entities import Metric

        summary, now = self.directory.summary() or {}, int(time.time() * 1000)
        means = dict(finite({key: value for key, value in summary.items() if key.startswith(("mean_next_", "drift_"))}))
        metrics = [Metric(key, value, now, int(summary["rounds"])) for key, value in means.items()]
        known = set() if self._outdated else self._client.get_run(self._id).data.metrics.keys()
        if metrics and not means.keys() <= known:
            self._client.log_batch(self._id, metrics=metrics)

    def conclude(self) -> None:
        outcome = outcome_of(self.directory)
        self._client.set_tag(self._id, "outcome", outcome)
        self._client.set_terminated(self._id, status_of(outcome))

    def _tags(self) -> dict[str, str]:
        facts, needed = self._facts, ("label", "initialiser", "algorithm", "scenario", "dataset", "seed", "run_key")
        if missing := [key for key in needed if key not in facts]:
            raise SettingsError(f"its manifest.json has no {missing[0]}, so another version wrote it")
        tags = {"outcome": "running", "directory": str(self.directory.path.resolve()), "algorithm": facts["label"]}
        tags |= {key: str(facts[key]) for key in ("initialiser", "scenario", "dataset", "seed", "run_key")}
        tags |= {"mlflow.user": getpass.getuser(), "mlflow.source.name": "fedtide", "mlflow.source.type": "LOCAL"}
        commit = git_commit()
        return {**tags, **self._store.place.tags, **({"git_commit": commit} if commit else {})}


def status_of(outcome: str) -> str:
    """MLflow's status of a run that is not in progress."""
    statuses = {"complete": "FINISHED", "pruned": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}
    return statuses.get(outcome, "KILLED")


def outcome_of(directory: RunDirectory) -> str:
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


def _ordered(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers of a round's record by column. MLflow compares runs by the first."""
    yield from sorted(finite(row), key=lambda item: item[0] == _EVERY_ROUND)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted keys and values short enough for MLflow."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, (value if isinstance(value, str) else json.dumps(value))[:_MAX_VALUE]


def draw_timeline(folder: Path, data: Dataset) -> None:
    """The picture of a run's timeline; runs of one process often share theirs, so it is drawn once."""
    from fedtide.world.picture import draw

    path, timeline = folder / "timeline.png", Timeline.load(folder / "timeline.npz")
    if path.is_file():
        return
    labels = seen_classes(data, timeline.concepts)
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
