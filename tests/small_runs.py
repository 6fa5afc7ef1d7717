"""Fixtures for tests that execute whole runs: six rounds on the digits."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtide.runs import execution
from fedtide.runs.display.progress import Watch
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings

Small = Callable[..., RunSettings]


def execute(settings: RunSettings, runs: Path, name: str | None = None, loggers: Any = (), **watch: Any) -> Any:
    """The summary of a run in a folder of run directories, followed by ``watch``."""
    return execution.execute(settings, Workspace(runs, loggers=tuple(loggers)), name=name, watch=Watch(**watch))


def in_parts(settings: RunSettings, runs: Path, stop_after: Any, *rounds: int, name: str = "x") -> Any:
    """The summary of a run that is interrupted after some rounds."""
    for stopped in rounds:
        assert execute(settings, runs, name, callbacks=[stop_after(stopped)])["state"] == "interrupted"
    return execute(settings, runs, name)


def history(run: Path) -> list[dict[str, str]]:
    """Rows of a run's history, without the wall-clock seconds."""
    with (run / "history.csv").open(encoding="utf-8", newline="") as stream:
        return [{name: cell for name, cell in row.items() if name != "seconds"} for row in csv.DictReader(stream)]


def events(run: Path, kind: str = "") -> list[dict[str, Any]]:
    """Events of a run, of one kind where it is given."""
    found = map(json.loads, (run / "events.jsonl").read_text(encoding="utf-8").splitlines())
    return [event for event in found if kind in ("", event["event"])]


def calendar(file: Path, rounds: int = 2, data: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    """A settings file's content: a session per month of a table whose rows have an owner ``who`` and a time ``when``."""
    source = {"name": "table", "root": str(file.parent), "file": str(file), "client": "who", "time": "when"}
    return {
        "data": {**source, **(data or {})},
        "scenario": {"name": "calendar", "rounds_per_period": rounds},
        "partition": "natural",
        "model": "softmax_regression",
        **others,
    }


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Settings of a run of six short rounds on the digits: ``small(**changes)``, groups are merged."""
    root = str(tmp_path_factory.mktemp("data"))

    def make(**changes: Any) -> RunSettings:
        raw: dict[str, Any] = {
            "data": {"name": "digits", "root": root},
            "scenario": {"name": "static", "rounds": 6, "num_clients": 4},
            "participation": {"name": "fixed", "fraction": 0.5},
            "model": "softmax_regression",
            "algorithm": "scaffold",
            "local": {"steps": 2, "batch_size": 16, "lr": 0.1},
            "engine": {"workers": 1, "accelerator": "cpu"},
            "checkpoint": {"every": 2},
        }
        for key, value in changes.items():
            merge = isinstance(value, dict) and isinstance(raw.get(key), dict) and "name" not in value
            raw[key] = {**raw[key], **value} if merge else value
        return Params(raw).run()

    return make


@pytest.fixture(scope="session")
def stop_after() -> Callable[[int], Any]:
    """A callback that stops the fit after a round, as a signal would."""
    import lightning as L

    class Stop(L.Callback):
        def __init__(self, round_: int) -> None:
            self.round = round_

        def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
            if pl_module.state.round >= self.round:
                trainer.should_stop = True

    return Stop


@pytest.fixture
def run_once(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Executes a run in this test's folder under the name ``x``: ``run_once(settings, ...)`` gives its summary."""
    return lambda settings, **options: execute(settings, tmp_path, name="x", **options)
