"""Runs of several processes (``engine.devices``)."""

import json
import os
import signal
import subprocess
import sys

import pytest
from attempt import rows_of

from commands import sets
from small_runs import events
from waiting import until

pytestmark = pytest.mark.slow


def start(folder, *settings):
    command = [sys.executable, "-m", "fedtide.cli.main", "run", "--json", "--name", "two"]
    command += sets("engine.devices=2", *settings)
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)


def followers(name):
    """Processes of a run, from their command lines."""
    found = subprocess.run(["pgrep", "-f", f"--name {name} "], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split() if int(pid) != os.getpid()]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_two_processes_stop_together_and_resume(folder, number, status):
    longer = "scenario={name: sessions, num_devices: 4, num_sessions: 2, rounds_per_session: 150}"
    leader = start(folder, longer)
    run = folder / "runs/two"
    until(lambda: rows_of(run) > 20)
    leader.send_signal(number)
    assert leader.wait() == status
    until(lambda: not followers("two"))
    assert 20 < rows_of(run) < 300
    assert start(folder, longer).wait() == 0, (folder / "output").read_text()
    (summary,) = [json.loads(line) for line in (folder / "output").read_text().splitlines() if line.startswith("{")]
    assert (summary["state"], summary["rounds"]) == ("complete", 300)
    kinds = [event["event"] for event in events(run)]
    assert [kind for kind in kinds if kind != "session"][-2:] == ["resumed", "complete"]
    assert kinds.count("session") == 1
