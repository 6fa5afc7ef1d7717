"""Comparisons on real Dask workers, with a local one as the reference."""

import contextlib
import json
import random
import signal
import sqlite3

import pytest

from clusters import cluster, kill_machine, output_of, started
from fedtide.runs.compare import compare
from fedtide.runs.workspace import Workspace
from fedtide.settings.experiment import CompareSettings
from fedtide.settings.params import Params
from records import same_records
from waiting import until

GRID = {
    "scenario": {"name": "sessions", "num_devices": 3, "num_sessions": 2, "rounds_per_session": 40},
    "compare": {"algorithms": ["fedavg", "scaffold"], "seeds": [0, 1]},
    "checkpoint": {"every": 7},
}


def settings_of(changes):
    return [f"--set={key}={json.dumps(value)}" for key, value in changes.items()]


def reference(folder, changes):
    """The same runs, executed here."""
    params = Params.read(folder / "params.yaml", [line.removeprefix("--set=") for line in settings_of(changes)])
    runs = folder / "reference"
    runs.mkdir()
    compare(params.grid(), Workspace(runs), CompareSettings(workers=1))
    return runs


def assert_same(folder, changes):
    whole = reference(folder, changes)
    names = {path.name for path in whole.glob("*-s*")}
    assert {path.name for path in (folder / "runs").glob("*-s*")} == names
    for name in names:
        same_records(folder / "runs" / name, whole / name)


@pytest.mark.slow
def test_a_search_on_a_cluster_is_mirrored_by_the_command(folder):
    """A grid, so that the trials do not depend on the order in which they end."""
    changes = {
        "validation": 0.2,
        "tracking": {"mlflow": True},
        "tune": {"space": {"local.lr": {"choices": [0.05, 0.1]}}, "sampler": "grid", "prune": False, "workers": 2},
    }
    search = ["tune", *settings_of(changes), "--runs"]
    command = started(folder, *search, "there", "--out=there-tuning", "--cluster=local")
    assert command.wait() == 0, output_of(folder)
    assert sum(": on " in line for line in output_of(folder)) == 2
    assert started(folder, *search, "here", "--out=here-tuning", "--mlruns=other").wait() == 0
    names = sorted(path.name for path in (folder / "here").glob("tune-*"))
    assert names == sorted(path.name for path in (folder / "there").glob("tune-*"))
    assert sorted((folder / "there-tuning" / "trials.csv").read_text().splitlines()) == sorted(
        (folder / "here-tuning" / "trials.csv").read_text().splitlines()
    )
    assert mirrored(folder / "mlruns") == mirrored(folder / "other")


def mirrored(mlruns):
    """Name, state and number of rounds of each run in MLflow."""
    query = (
        "SELECT runs.name, status, count(metrics.step) FROM runs LEFT JOIN metrics "
        "ON runs.run_uuid = metrics.run_uuid AND key = 'session' GROUP BY runs.run_uuid"
    )
    with contextlib.closing(sqlite3.connect(mlruns / "mlflow.db")) as database:
        return sorted(database.execute(query).fetchall())


@pytest.mark.slow
def test_the_scheduler_is_lost_and_the_same_command_does_the_rest(folder):
    changes = {**GRID, "compare": {"algorithms": ["fedavg"], "seeds": [0, 1, 2, 3]}}
    arguments = ["compare", *settings_of(changes)]
    with cluster(folder / "dask", 2) as machines:
        command = started(folder, *arguments, f"--cluster={machines.address}")
        until(lambda: command.poll() is not None or any("1/4" in line for line in output_of(folder)))
        kill_machine(machines.scheduler)
        assert command.wait() == 1
    last = output_of(folder)[-1]
    assert last.startswith(f"fedtide: lost connection to the Dask scheduler of {machines.address}; ")
    assert not any("Traceback" in line for line in output_of(folder)), output_of(folder)
    command = started(folder, *arguments, "--cluster=local", "--set=compare.workers=2")
    assert command.wait() == 0
    assert "already complete, nothing to do" in output_of(folder)[0]
    assert_same(folder, changes)


WAYS = {
    "the machine is gone": lambda process: kill_machine(process),
    "the worker is gone": lambda process: process.kill(),
    "the worker is told": lambda process: process.terminate(),
    "the batch system ends the job": lambda process: kill_machine(process, signal.SIGTERM),
    "the batch system gives notice": lambda process: process.send_signal(signal.SIGUSR1),
    "it tells everybody": lambda process: kill_machine(process, signal.SIGUSR2),
}


@pytest.mark.slow
def test_every_worker_is_lost_again_and_again(folder):
    """Three workers at a time, each replaced as it is lost, as a batch system would; the reference runs here."""
    changes = {**GRID, "compare": {"algorithms": ["fedavg", "scaffold", "fedprox"], "seeds": [*range(7)]}}
    draw = random.Random(0)
    lost: dict[int, int] = dict.fromkeys(range(3), 0)
    ways = list(WAYS)
    with cluster(folder / "dask", 3) as machines:
        command = started(folder, "compare", f"--cluster={machines.address}", *settings_of(changes))
        places = dict(enumerate(machines.workers))
        began = 0
        while command.poll() is None:
            if min(lost.values()) >= 2:
                command.wait()
                break
            place = draw.choice([number for number, times in lost.items() if times == min(lost.values())])
            until(lambda seen=began: command.poll() is not None or runs_begun(folder) > seen + 2)
            began = runs_begun(folder)
            WAYS[ways[sum(lost.values()) % len(ways)]](places[place])
            lost[place] += 1
            places[place] = machines.add_worker()
        assert command.wait() == 0, output_of(folder)
    output = output_of(folder)
    assert sum(lost.values()) >= len(WAYS) - 1, lost
    assert not any("Traceback" in line or "FAILED" in line for line in output), output
    assert sum("; resuming from its checkpoint" in line for line in output) >= 3
    assert any("its worker was lost" in line for line in output)
    assert_same(folder, changes)
    assert not list((folder / "runs").glob(".cluster*"))


def runs_begun(folder):
    """How often a worker has begun a run."""
    return sum(", worker w" in line and ": on " in line for line in output_of(folder))
