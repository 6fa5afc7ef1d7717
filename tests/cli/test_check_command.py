"""``fedtide check``."""

import json
import re

import pytest

SESSIONS = (
    "--set",
    "scenario={name: sessions, num_devices: 3, num_sessions: 3, rounds_per_session: 2, pilot_sessions: 1}",
)


KEPT = ("--set", "checkpoint.keep_finished=true")


@pytest.fixture
def runs(fedtide, folder):
    """Two complete runs that share a pilot and keep their states; the folder."""
    for initializer in ("previous", "average"):
        assert fedtide("run", "-q", *SESSIONS, *KEPT, "--set", f"initializer={initializer}").status == 0
    return folder / "runs"


def test_all_runs_of_a_folder_are_verified(fedtide, runs):
    whole = fedtide("check")
    assert (whole.status, whole.out) == (0, ["2 runs: 2 intact; 1 shared pilot: 1 intact"])
    average, previous = sorted(path for path in runs.glob("*-s0-*"))
    (previous / "summary.json").unlink()
    assert fedtide("check", "runs").out == ["2 runs: 1 intact, 1 unfinished; 1 shared pilot: 1 intact"]
    (average / "model.pt").unlink()
    rows = (average / "history.csv").read_text()
    (average / "history.csv").write_text(re.sub(r"^3,", "4,", rows, flags=re.MULTILINE))
    (pilot,) = runs.glob("pilots/*/state-*.pt")
    pilot.write_bytes(pilot.read_bytes()[:-1])
    found = fedtide("check")
    assert found.status == 1
    assert found.out == [
        f"{average.name}: history.csv was changed",
        f"{average.name}: model.pt is missing",
        f"pilots/{pilot.parent.name}: {pilot.name} is damaged",
        f"2 runs: 1 unfinished, 1 damaged: {average.name}; 1 shared pilot: 1 damaged: pilots/{pilot.parent.name}",
    ]
    machine = fedtide("check", "--json")
    assert machine.status == 1
    (line,) = machine.out
    assert json.loads(line)[0] == {
        "name": average.name, "state": "damaged", "problems": ["history.csv was changed", "model.pt is missing"]
    }  # fmt: skip


def test_a_damaged_run_is_not_reported(fedtide, runs):
    (damaged, _) = sorted(path for path in runs.glob("*-s0-*"))
    (damaged / "per_class.csv").unlink()
    grid = ("--set", "compare={algorithms: [fedavg], initializers: [previous, average], seeds: [0]}")
    called = fedtide("report", *SESSIONS, *grid)
    assert called.status == 2
    assert called.err == [f"fedtide: runs/{damaged.name}: per_class.csv is missing; restore it, or delete its "
                          "summary.json, and the same command restores it if its checkpoint allows"]  # fmt: skip


def test_what_a_killed_process_leaves_is_not_damage(fedtide, folder):
    (folder / "runs/begun/state").mkdir(parents=True)
    torn = folder / "runs/torn"
    assert fedtide("run", "-q", "--name", "torn", *KEPT, "--set", "checkpoint.every=3").status == 0
    for path in (torn / "summary.json", torn / "state/state-00000004.pt"):
        path.unlink()
    for name in ("history.csv", "events.jsonl"):
        with (torn / name).open("a") as stream:
            stream.write('5,1,"')
    assert fedtide("check").out == ["2 runs: 2 unfinished"]


def test_a_folder_without_runs_is_refused(fedtide):
    called = fedtide("check", "nowhere")
    assert (called.status, called.err) == (2, ["fedtide: nowhere: no run directories in this folder"])
