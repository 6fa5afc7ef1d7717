"""A process that is killed between its run's records and MLflow: the resumed run, or `fedtide mlflow sync`, completes it."""

import os
import signal
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from shown import EXPERIMENT, Make, artifacts, only_run, steps

from fedtide.records.run_directory import RunDirectory
from fedtide.runs.display.progress import Watch
from fedtide.runs.execution import execute
from fedtide.runs.jobs.processes import main_module_hidden, worker_context
from fedtide.runs.lightning import callbacks as batches
from fedtide.runs.mlflow import mlflow_run
from fedtide.runs.mlflow.store import Store
from fedtide.runs.mlflow.upload import mirror
from fedtide.runs.workspace import Workspace
from fedtide.settings.run import RunSettings


def kill(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


class KilledAfter(L.Callback):
    """Kills its process at the end of a round."""

    def __init__(self, round_: int) -> None:
        self.round = round_

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if module.state.round == self.round:
            kill()


def work(settings: RunSettings, runs: Path, mlruns: Path, moment: str) -> None:
    """A run that is killed after a round, or when all but the outcome is uploaded."""
    batches._SECONDS = 0.0
    if moment == "outcome":
        mlflow_run.outcome_of = kill
    callbacks = [KilledAfter(3)] if moment == "round" else []
    execute(settings, Workspace(runs, None, mlruns, EXPERIMENT), watch=Watch(callbacks=callbacks))


def killed(settings: RunSettings, runs: Path, mlruns: Path, moment: str) -> Path:
    """The directory of a run in a process of its own that is killed."""
    process = worker_context().Process(target=work, args=(settings, runs, mlruns, moment))
    with main_module_hidden():
        process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (directory,) = runs.iterdir()
    return directory


def shown(mlruns: Path) -> tuple[str, str, list[int], str]:
    """Status, outcome, rounds and id of the only run."""
    store, run = only_run(mlruns)
    return run.info.status, run.data.tags["outcome"], steps(store, run, "session"), run.info.run_id


@pytest.mark.slow
def test_a_run_that_was_complete_is_finished_by_mirror_and_left_alone_afterwards(
    settings: Make, tmp_path: Path, mlruns: Path
) -> None:
    directory = killed(settings(), tmp_path / "runs", mlruns, "outcome")
    assert (RunDirectory(directory).summary() or {})["state"] == "complete"
    assert shown(mlruns)[:2] == ("RUNNING", "running")
    for last in ("MLflow: 1 runs written, 0 up to date", "MLflow: 0 runs written, 1 up to date"):
        lines: list[str] = []
        mirror([directory], mlruns, EXPERIMENT, lines.append)
        assert lines == [last]
        assert shown(mlruns)[:3] == ("FINISHED", "complete", [1, 2, 3, 4])
        assert artifacts(*only_run(mlruns)) == {"settings.json", "history.csv", "per_class.csv", "model.pt"}


@pytest.mark.slow
def test_a_killed_run_is_continued_where_it_is(settings: Make, tmp_path: Path, mlruns: Path) -> None:
    """Shown as running meanwhile, as killed by `fedtide mlflow sync`, and with every round once in the end."""
    directory = killed(settings(), tmp_path / "runs", mlruns, "round")
    status, _, rounds, key = shown(mlruns)
    assert (status, rounds) == ("RUNNING", [1, 2, 3])
    mirror([directory], mlruns, EXPERIMENT)
    assert shown(mlruns) == ("KILLED", "killed", [1, 2, 3], key)
    seen: list[str] = []

    class Looking(L.Callback):
        def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
            seen.append(shown(mlruns)[0])

    where = Workspace(tmp_path / "runs", None, mlruns, EXPERIMENT)
    execute(settings(), where, watch=Watch(callbacks=[Looking()]))
    assert seen == ["RUNNING", "RUNNING"]
    assert shown(mlruns) == ("FINISHED", "complete", [1, 2, 3, 4], key)


def test_a_parent_that_was_never_closed_is_finished(mlruns: Path) -> None:
    store = Store(mlruns, EXPERIMENT)
    run = store.client.create_run(store.experiment, tags={"comparison": "half made"}).info.run_id
    assert store.parent("half made") == run
    assert store.client.get_run(run).info.status == "FINISHED"
