"""What MLflow shows of runs, and what they have recorded."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedtide.runs.mlflow.server import Server
from fedtide.runs.mlflow.store import Store
from fedtide.settings.run import RunSettings

Make = Callable[..., RunSettings]
EXPERIMENT = "tests"


def only_run(place: Path | Server, experiment: str = EXPERIMENT) -> tuple[Store, Any]:
    """The store, and the only run in it."""
    store = Store(place, experiment)
    (run,) = store.runs("tags.run_key != ''")
    return store, run


def values(store: Store, run: Any, metric: str) -> list[tuple[int, float]]:
    """Round and value of all points of a metric."""
    return [(item.step, item.value) for item in store.client.get_metric_history(run.info.run_id, metric)]


def steps(store: Store, run: Any, metric: str) -> list[int]:
    """The rounds of a metric."""
    return [step for step, _ in values(store, run, metric)]


def recorded(directory: Path, column: str) -> list[tuple[int, float]]:
    """The same, of a run directory."""
    with (directory / "history.csv").open(encoding="utf-8") as stream:
        return [(int(row["round"]), float(row[column])) for row in csv.DictReader(stream) if row[column]]


def artifacts(store: Store, run: Any) -> set[str]:
    """Names of a run's files."""
    return {item.path for item in store.client.list_artifacts(run.info.run_id)}
