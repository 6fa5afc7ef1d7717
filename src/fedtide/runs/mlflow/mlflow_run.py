"""The MLflow run of one run directory."""

import getpass
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import short_hash
from fedtide.records.files.guarantees import PRIVACY
from fedtide.records.run_directory import ENCODING, MODEL, SERVED, RunDirectory, finite, flat, read_json
from fedtide.records.summary import predicts
from fedtide.runs.mlflow.logged_model import log_model
from fedtide.runs.mlflow.store import Store, git_commit
from fedtide.world.dataset import Dataset

_DIGEST = 36  # characters of a dataset's digest, MLflow's limit
_MAX_VALUE = 6000  # characters of a parameter's value, MLflow's limit
_MAX_METRICS = 1000  # per call, MLflow's limit
_MAX_PARAMS = 100  # per call, MLflow's limit
_EVERY_ROUND = "session"  # a metric that is finite in every round, so it tells which rounds are logged
_FILES = ("settings.json", "history.csv", "per_class.csv", "session_scores.csv", ENCODING, PRIVACY, SERVED, MODEL)
_STATUS = {"complete": "FINISHED", "pruned": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}


class MlflowRun:
    """The MLflow run of a run directory, found by run key and name; :meth:`begin` creates it.

    Raises:
        SettingsError: another version has written the manifest.
    """

    def __init__(self, store: Store, directory: RunDirectory) -> None:
        self.directory, self._client, self._store = directory, store.client, store
        self._facts = read_json(directory.path / "manifest.json") or {}
        needed = ("label", "initializer", "algorithm", "scenario", "dataset", "seed", "run_key")
        if missing := [key for key in needed if key not in self._facts]:
            raise SettingsError(f"its manifest.json has no {missing[0]}, so another version wrote it")
        name, key = directory.path.name, self._facts["run_key"]
        self._run: Any = next(iter(store.runs(f"tags.run_key = '{key}' and attributes.run_name = '{name}'")), None)
        self._rounds: set[int] = set()
        if self._run is not None:
            self._rounds = {item.step for item in self._client.get_metric_history(self._id, _EVERY_ROUND)}

    @property
    def _id(self) -> str:
        return str(self._run.info.run_id)

    def is_complete(self, model: bool) -> bool:
        """Whether MLflow has every round, the outcome, and the ``model`` if it is wanted."""
        return (
            self._run is not None
            and self._run.data.tags.get("outcome") == outcome_of(self.directory)
            and self._run.info.status != "RUNNING"
            and self._rounds.issuperset(int(row["round"]) for row in self.directory.history())
            and not (model and self.lacks_model)
        )

    @property
    def lacks_model(self) -> bool:
        """Whether there is a final model that MLflow does not have."""
        known = self._run is not None and self._run.outputs is not None and self._run.outputs.model_outputs
        found = outcome_of(self.directory) == "complete" and MODEL in self.directory.marks()  # an archive leaves it out
        return found and not known and predicts(self.directory.summary() or {})

    def begin(self, parent: str) -> None:
        """Show the run as running, with its settings, tags, dataset and the rounds so far; below ``parent`` if it is new."""
        from mlflow.entities import Param, RunTag

        rows, tags = self.directory.history(), self._tags()  # first: they may be damaged
        if self._run is None:
            if parent:
                tags["mlflow.parentRunId"] = self._store.parent(parent)
            self._run = self._client.create_run(self._store.experiment, run_name=self.directory.path.name, tags=tags)
        else:
            self._client.update_run(self._id, status="RUNNING")
            self._client.log_batch(self._id, tags=[RunTag(key, value) for key, value in tags.items()])
        settings = read_json(self.directory.path / "settings.json") or {}
        words = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in flat(settings))
        known = self._run.data.params  # MLflow refuses another value, even one that was cut shorter
        params = [Param(key, _cut(text)) for key, text in words if key not in known]
        for start in range(0, len(params), _MAX_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + _MAX_PARAMS])
        self._client.log_inputs(self._id, _inputs(self._facts, settings))
        self.add(rows)

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

    def upload(self, parent: str, data: Dataset | None = None, register: str | None = None) -> None:
        """Bring a run that is not in progress up to its records: all of :meth:`begin`, then files, model and outcome.

        A repetition adds what is missing. Without ``data``, the run's dataset, the model is left out.

        Raises:
            SettingsError: the records are damaged, or no longer say what the model is; of the latter all else is logged.
        """
        self.begin(parent)
        for path in (self.directory.path / name for name in _FILES):
            if path.is_file():
                self._client.log_artifact(self._id, str(path))
        self._log_means()
        outcome = outcome_of(self.directory)
        try:
            if data is not None and self.lacks_model:
                log_model(self._store, self._id, self.directory.path, data, register)
        except SettingsError as error:
            raise SettingsError(f"without its model: {error}") from None
        finally:
            self._client.set_tag(self._id, "outcome", outcome)
            self._client.set_terminated(self._id, _STATUS.get(outcome, "KILLED"))

    def _log_means(self) -> None:
        """Log what only a complete run has: means over next periods and drifts, alarms, and what erased clients have left."""
        from mlflow.entities import Metric

        summary, now = self.directory.summary() or {}, int(time.time() * 1000)
        known = self._client.get_run(self._id).data.metrics
        named = ("mean_next_", "final_served_", "drift_", "alarms", "erased_")
        means = {key: value for key, value in summary.items() if key.startswith(named)}
        missing = [(key, value) for key, value in finite(means) if key not in known]
        metrics = [Metric(key, value, now, int(summary["rounds"])) for key, value in missing]
        if metrics:
            self._client.log_batch(self._id, metrics=metrics)

    def _tags(self) -> dict[str, str]:
        facts, commit = self._facts, git_commit()
        tags = {"outcome": "running", "directory": str(self.directory.path.resolve()), "algorithm": facts["label"]}
        tags |= {key: str(facts[key]) for key in ("initializer", "scenario", "dataset", "seed", "run_key")}
        tags |= {"mlflow.user": getpass.getuser(), "mlflow.source.name": "fedtide", "mlflow.source.type": "LOCAL"}
        return {**tags, **({"git_commit": commit} if commit else {})}


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


def _cut(text: str) -> str:
    """A text that MLflow takes; different texts stay different."""
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 20]}... {short_hash(text)}"


def _inputs(facts: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Any]:
    """The training and the test samples as MLflow's inputs."""
    from mlflow.entities import Dataset as Entity
    from mlflow.entities import DatasetInput, InputTag

    source = json.dumps({"tags": {"fedtide": json.dumps(settings.get("data", {}), sort_keys=True)}})
    found = []
    for split, context in (("train", "training"), ("test", "testing")):
        entity = Entity(f"{facts['dataset']} {split}", str(facts["data"])[:_DIGEST], "code", source)
        found.append(DatasetInput(entity, [InputTag("mlflow.data.context", context)]))
    return found
