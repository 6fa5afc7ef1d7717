"""MLflow has the latest rounds, means and model of a run that continues with appended rows."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from fedtide.mirror.mlflow import mirror
from fedtide.mirror.store import Store
from fedtide.mirror.workspace import Workspace
from fedtide.runs.execution import execute
from fedtide.runs.progress import Watch
from fedtide.settings.params import Params

EXPERIMENT = "tests"


def rows(periods: int) -> str:
    lines = [
        f"{'bcde'[n]},{day},{(7 * day + 3 * n) % 11},{'uv'[(day * n + day) % 2]}"
        for day in range(10 * periods)
        for n in range(4)
    ]
    return "\n".join(["who,when,x,label", *lines, ""])


def executed(root: Path, periods: int, mlruns: Path | None) -> Any:
    table = {"name": "table", "root": str(root), "file": str(root / "rows.csv"), "client": "who", "time": "when"}
    raw = {
        "data": {**table, "unit": "days", "classes": ["u", "v"], "split": {"period": 10}, "grows": True},
        "scenario": {"name": "calendar", "period": 10, "rounds_per_period": 2},
        "partition": {"name": "natural"},
        "model": "logistic",
        "local": {"amount": 1, "unit": "steps"},
        "engine": {"workers": 1},
    }
    (root / "rows.csv").write_text(rows(periods))
    return execute(Params(raw).run(), Workspace(root / "runs", None, mlruns, EXPERIMENT), watch=Watch(print))


def latest(store: Store, run: Any, metric: str) -> dict[int, float]:
    """The value of each round that was logged last."""
    history = store.client.get_metric_history(run.info.run_id, metric)
    return {item.step: item.value for item in sorted(history, key=lambda item: item.timestamp)}


@pytest.mark.parametrize("live", [True, False])
def test_the_latest_rounds_and_means_are_mirrored(tmp_path: Path, mlruns: Path, live: bool) -> None:
    """While the run continues, or afterwards by `fedtide mirror`."""
    first = executed(tmp_path, 2, mlruns)
    summary = executed(tmp_path, 3, mlruns if live else None)
    directory = tmp_path / "runs" / summary["run_key"]
    assert first["run_key"] == summary["run_key"]
    lines: list[str] = []
    assert mirror([directory], mlruns, EXPERIMENT, lines.append) == 0
    assert lines[-1].startswith("MLflow: 0 runs written, 1 up to date" if live else "MLflow: 1 runs written")
    assert mirror([directory], mlruns, EXPERIMENT, lines.append) == 0
    assert lines[-1].startswith("MLflow: 0 runs written, 1 up to date")
    store = Store(mlruns, EXPERIMENT)
    (run,) = store.runs("tags.run_key != ''")
    with (directory / "history.csv").open() as stream:
        history = list(csv.DictReader(stream))
    for column in ("test_loss", "test_accuracy_next", "seconds"):
        recorded = {int(row["round"]): float(row[column]) for row in history if row[column]}
        assert latest(store, run, column) == recorded
    assert run.data.metrics["mean_next_accuracy"] == pytest.approx(summary["mean_next_accuracy"])
    assert (run.info.status, run.data.tags["data"]) == ("FINISHED", summary["data"])
