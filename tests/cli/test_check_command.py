"""``fedtide check``."""

import json
import re

import pytest

from commands import sets


@pytest.fixture
def runs(fedtide, folder):
    """Two complete runs that keep their states; the folder."""
    for initializer in ("previous", "average"):
        chosen = sets("scenario.num_sessions=3", "checkpoint.keep_finished=true", f"initializer={initializer}")
        assert fedtide("run", "-q", *chosen).status == 0
    return folder / "runs"


@pytest.mark.slow
def test_all_runs_of_a_folder_are_verified(fedtide, runs):
    whole = fedtide("check")
    assert (whole.status, whole.out) == (0, ["2 runs: 2 intact"])
    average, previous = sorted(path for path in runs.glob("*-s0-*"))
    (previous / "summary.json").unlink()
    assert fedtide("check", "runs").out == ["2 runs: 1 intact, 1 unfinished"]
    (average / "model.pt").unlink()
    rows = (average / "history.csv").read_text()
    (average / "history.csv").write_text(re.sub(r"^3,", "4,", rows, flags=re.MULTILINE))
    found = fedtide("check")
    assert found.status == 1
    assert found.out == [
        f"{average.name}: history.csv was changed",
        f"{average.name}: model.pt is missing",
        f"2 runs: 1 unfinished, 1 damaged: {average.name}",
    ]
    machine = fedtide("check", "--json")
    assert machine.status == 1
    (line,) = machine.out
    assert json.loads(line)[0] == {
        "name": average.name, "state": "damaged", "problems": ["history.csv was changed", "model.pt is missing"]
    }  # fmt: skip


def test_a_folder_without_runs_is_refused(fedtide):
    assert fedtide("check", "nowhere").refusal == "nowhere: no run directories in this folder"


def test_states_of_complete_runs_are_pruned(fedtide, runs):
    """What must stay does, by runs/test_finished_states.py."""
    stored = sum(path.stat().st_size for path in runs.glob("*/state/*"))
    found = fedtide("check", "--prune")
    removed = f"{stored:,} bytes of checkpoints of 2 runs removed"
    assert (found.status, found.out) == (0, ["2 runs: 2 intact", removed])
    assert not list(runs.glob("*/state/*"))
    again = fedtide("check", "--prune", "--json")
    assert (again.status, [run["freed"] for run in json.loads(again.out[0])]) == (0, [0, 0])
