"""``kill -9`` of DVC while a stage trains: the trainer saves its state and ends, the same command continues."""

import signal

import psutil
import pytest

from fedtide.core.storage.locks import is_held
from small_runs import events
from waiting import until

pytestmark = pytest.mark.slow


def rounds(run):
    history = run / "history.csv"
    return history.read_text().count("\n") - 1 if history.is_file() else 0


def test_killed_while_training_it_resumes_and_finishes(project, tmp_path):
    project.change(scenario={"name": "sessions", "num_devices": 3, "num_sessions": 2, "rounds_per_session": 30},
                   local={"steps": 400, "batch_size": 16, "lr": 0.02},  # most of them take longer than it takes to notice
                   tracking={"mlflow": True, "experiment": "fedtide"})  # fmt: skip
    known = set((project.root / "runs").iterdir())
    log = tmp_path / "killed.log"
    project.environment["SHELL"] = "/bin/sh"  # which may stay between DVC and the trainer, as bash does not
    dvc = project.start("train@fedavg", log=log)
    run = until(
        lambda: next((path for path in set((project.root / "runs").iterdir()) - known if rounds(path) > 3), None)
    )
    trainers = psutil.Process(dvc.pid).children(recursive=True)
    for process in trainers:
        process.suspend()  # so that it is in the middle of its rounds when it finds itself alone
    dvc.send_signal(signal.SIGKILL)
    dvc.wait()
    for process in trainers:
        process.resume()
    until(lambda: not is_held(run))
    stopped = events(run)[-1]
    assert stopped["event"] == "interrupted"
    assert 3 < stopped["round"] < 60
    assert (run / f"state/state-{stopped['round']:08d}.pt").is_file()

    ran, _ = project.repro("train@fedavg")
    assert "train@fedavg" in ran
    told = [(event["event"], event["round"]) for event in events(run) if event["event"] != "session"]
    assert told == [("interrupted", stopped["round"]), ("resumed", stopped["round"]), ("complete", 60)]
    assert rounds(run) == 60
    outcome = project.outcome("fedavg")
    assert (outcome["run_key"], outcome["state"]) == (run.name, "complete")
