"""A comparison of several processes that is stopped, or loses one of them."""

import os
import signal
import subprocess
import sys

import pytest
from attempt import rows_of

from fedtide.core.storage.locks import is_held
from waiting import until

pytestmark = pytest.mark.slow
LONG = "scenario={name: sessions, num_devices: 4, num_sessions: 2, rounds_per_session: 2000}"
RUNS = "runs/fedavg-*"
GRID = ("compare.seeds=[0, 1, 2]", "compare.workers=2")


@pytest.fixture
def comparison(folder):
    """Two of three long runs in progress, in a process group of their own as in a terminal."""
    command = [sys.executable, "-m", "fedtide.cli.main", "compare", *(f"--set={setting}" for setting in (LONG, *GRID))]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    until(lambda: sum(rows_of(run) > 20 for run in folder.glob(RUNS)) == 2)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def states(folder):
    return [max(path.name for path in run.glob("state/*.pt")) for run in sorted(folder.glob(RUNS))]


def test_ctrl_c_in_a_terminal_reaches_all_processes_and_every_state_is_saved(folder, comparison):
    os.killpg(comparison.pid, signal.SIGINT)
    assert comparison.wait() == 130
    until(lambda: not any(is_held(run) for run in folder.glob(RUNS)))
    output = (folder / "output").read_text()
    assert "Traceback" not in output
    assert output.splitlines()[-1] == "Interrupted. Re-run the same command to resume."
    assert states(folder) == [f"state-{rows_of(run):08d}.pt" for run in sorted(folder.glob(RUNS))]
    assert len(states(folder)) == 2  # the third run was not begun


def test_processes_never_outlive_the_one_that_started_them(folder, comparison):
    comparison.kill()
    comparison.wait()
    until(lambda: not any(is_held(run) for run in folder.glob(RUNS)))
    assert states(folder) == [f"state-{rows_of(run):08d}.pt" for run in sorted(folder.glob(RUNS))]
