"""A process that is killed between its run's records and MLflow: the next one to open the store corrects it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtide.mirror.mlflow import MlflowMirror, correct, correct_all, mirror
from fedtide.mirror.store import Store
from fedtide.mirror.workspace import Workspace
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.execution import execute
from fedtide.runs.jobs.processes import main_module_hidden, worker_context
from fedtide.runs.progress import Watch
from fedtide.settings.run import RunSettings

Make = Callable[..., RunSettings]
EXPERIMENT = "tests"


class Killed(MlflowMirror):
    """Kills its process: before it logs the end of a run, or right after the model's file."""

    moment = "end"

    def end(self) -> None:
        if self.moment == "files" and self._run is not None:
            client = self._run._client
            log_artifact = client.log_artifact

            def killing(run: str, path: str) -> None:
                log_artifact(run, path)
                if path.endswith("model.pt"):
                    os.kill(os.getpid(), signal.SIGKILL)

            client.log_artifact = killing
            super().end()
        os.kill(os.getpid(), signal.SIGKILL)

    def log_round(self, row: dict[str, Any]) -> None:
        if self.moment == "round" and row["round"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.moment != "end":  # rounds are missing, as after a failure of the store
            super().log_round(row)


def work(settings: RunSettings, runs: Path, mlruns: Path, moment: str) -> None:
    tracker = Killed(mlruns, EXPERIMENT)
    tracker.moment = moment
    execute(settings, Workspace(runs), watch=Watch(tracker=tracker))


def killed(settings: RunSettings, runs: Path, mlruns: Path, moment: str) -> None:
    """A run in a process of its own that is killed."""
    process = worker_context().Process(target=work, args=(settings, runs, mlruns, moment))
    with main_module_hidden():
        process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def shown(mlruns: Path) -> tuple[str, str, list[int], set[str]]:
    """Status, outcome, rounds and files of the only run."""
    store = Store(mlruns, EXPERIMENT)
    (run,) = store.runs("tags.run_key != ''")
    key = run.info.run_id
    rounds = [item.step for item in store.client.get_metric_history(key, "session")]
    return run.info.status, run.data.tags["outcome"], rounds, {item.path for item in store.client.list_artifacts(key)}


@pytest.mark.parametrize("moment", ["end", "files"])
def test_a_run_that_was_complete_is_finished_with_its_rounds_and_files(
    settings: Make, tmp_path: Path, mlruns: Path, moment: str
) -> None:
    killed(settings(), tmp_path / "runs", mlruns, moment)
    (directory,) = (path for path in (tmp_path / "runs").iterdir() if path.name != "pilots")
    assert (RunDirectory(directory).summary() or {})["state"] == "complete"
    assert shown(mlruns)[:2] == ("RUNNING", "running")
    correct_all(mlruns, pytest.fail)
    status, outcome, rounds, files = shown(mlruns)
    assert (status, outcome, rounds) == ("FINISHED", "complete", [1, 2, 3, 4])
    assert {"settings.json", "history.csv", "per_class.csv", "model.pt", "accuracy.png"} <= files


def test_what_was_closed_as_killed_although_it_was_complete_is_corrected_by_the_next_run(
    settings: Make, tmp_path: Path, mlruns: Path
) -> None:
    killed(settings(), tmp_path / "runs", mlruns, "end")
    store = Store(mlruns, EXPERIMENT)
    (run,) = store.runs("tags.run_key != ''")
    store.client.set_tag(run.info.run_id, "outcome", "killed")
    store.client.set_terminated(run.info.run_id, "KILLED")
    execute(settings(seed=1), Workspace(tmp_path / "runs"), watch=Watch(tracker=MlflowMirror(mlruns, EXPERIMENT)))
    assert {item.info.status for item in store.runs("tags.run_key != ''")} == {"FINISHED"}


def test_a_run_that_was_not_complete_is_killed_then_running_then_finished(
    settings: Make, tmp_path: Path, mlruns: Path
) -> None:
    killed(settings(), tmp_path / "runs", mlruns, "round")
    assert shown(mlruns)[0] == "RUNNING"
    correct_all(mlruns, pytest.fail)
    assert shown(mlruns)[:3] == ("KILLED", "killed", [1, 2, 3])
    seen: list[str] = []

    class Watched(MlflowMirror):
        def log_round(self, row: dict[str, Any]) -> None:
            super().log_round(row)
            seen.append(shown(mlruns)[0])

    execute(settings(), Workspace(tmp_path / "runs"), watch=Watch(tracker=Watched(mlruns, EXPERIMENT)))
    assert seen == ["RUNNING", "RUNNING"]
    assert shown(mlruns)[:3] == ("FINISHED", "complete", [1, 2, 3, 4])


def test_a_parent_that_was_never_closed_is_finished(mlruns: Path) -> None:
    store = Store(mlruns, EXPERIMENT)
    run = store.client.create_run(store.experiment, tags={"comparison": "half made"}).info.run_id
    correct(store, pytest.fail)
    assert store.client.get_run(run).info.status == "FINISHED"


def test_damaged_records_of_one_run_are_a_remark(settings: Make, tmp_path: Path, mlruns: Path) -> None:
    killed(settings(), tmp_path / "runs", mlruns, "end")
    (history,) = (tmp_path / "runs").glob("*/history.csv")
    history.write_bytes(b"round\xff\n")
    lines: list[str] = []
    summary = execute(
        settings(seed=1),
        Workspace(tmp_path / "runs"),
        watch=Watch(tracker=MlflowMirror(mlruns, EXPERIMENT, log=lines.append)),
    )
    assert len(lines) == 1
    assert lines[0].startswith(f"MLflow: {history.parent.name}: ")
    mirror([tmp_path / "runs" / summary["run_key"]], mlruns, EXPERIMENT)
    statuses = {run.info.run_name: run.info.status for run in Store(mlruns, EXPERIMENT).runs("tags.run_key != ''")}
    assert statuses == {history.parent.name: "RUNNING", summary["run_key"]: "FINISHED"}


def test_a_finished_run_is_corrected_when_it_is_asked_for_again(settings: Make, tmp_path: Path, mlruns: Path) -> None:
    killed(settings(), tmp_path / "runs", mlruns, "end")
    assert shown(mlruns)[0] == "RUNNING"
    summary = execute(settings(), Workspace(tmp_path / "runs", mlruns=mlruns, experiment=EXPERIMENT))
    assert summary["state"] == "complete"
    assert shown(mlruns)[:2] == ("FINISHED", "complete")
