"""Runs of several processes (``engine.devices``)."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from attempt import rows_of

from commands import sets
from small_runs import events, history
from waiting import until

pytestmark = pytest.mark.slow


def start(folder, name, devices, *settings):
    command = [sys.executable, "-m", "fedtide.cli.main", "run", "--json", "--name", name]
    command += sets(f"engine.devices={devices}", *settings)
    with (folder / f"{name}.output").open("wb") as output:
        return subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)


def finish(folder, name, devices, *settings):
    assert start(folder, name, devices, *settings).wait() == 0, (folder / f"{name}.output").read_text()
    lines = (folder / f"{name}.output").read_text().splitlines()
    (summary,) = [json.loads(line) for line in lines if line.startswith("{")]
    return summary, torch.load(folder / "runs" / name / "model.pt", weights_only=True)


def followers(name):
    """Processes of a run, from their command lines."""
    found = subprocess.run(["pgrep", "-f", f"--name {name} "], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split() if int(pid) != os.getpid()]


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_two_processes_run_what_one_runs(folder, algorithm):
    settings = (f"algorithm={algorithm}", "participation={name: fixed, count: 3}", "local.epochs=5")
    one, expected = finish(folder, "one", 1, *settings)
    two, model = finish(folder, "two", 2, *settings)
    assert two["run_key"] != one["run_key"]
    for key in ("rounds", "bytes_up", "bytes_down", "state"):
        assert two[key] == one[key]
    assert all(torch.allclose(model[name], expected[name], rtol=0, atol=1e-6) for name in expected)
    columns = ("round", "session", "selected", "bytes_up", "lr")
    rows = [[[row[column] for column in columns] for row in history(folder / "runs" / name)] for name in ("one", "two")]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_two_processes_stop_together_and_resume(folder, number, status):
    longer = "scenario={name: sessions, num_devices: 4, num_sessions: 2, rounds_per_session: 400}"
    leader = start(folder, "two", 2, longer)
    run = folder / "runs/two"
    until(lambda: rows_of(run) > 20)
    leader.send_signal(number)
    assert leader.wait() == status
    until(lambda: not followers("two"))
    assert 20 < rows_of(run) < 800
    summary, _ = finish(folder, "two", 2, longer)
    assert (summary["state"], summary["rounds"]) == ("complete", 800)
    kinds = [event["event"] for event in events(run)]
    assert [kind for kind in kinds if kind != "session"][-2:] == ["resumed", "complete"]
    assert kinds.count("session") == 1
