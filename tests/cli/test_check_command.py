"""``fedtide check``."""

import json
import re
import shutil

import pytest

from fedtide.core.storage.locks import held

SESSIONS = (
    "--set",
    "scenario={name: sessions, num_devices: 3, num_sessions: 3, rounds_per_session: 2, pilot_sessions: 1}",
)


KEPT = ("--set", "checkpoint.keep_finished=true")


@pytest.fixture
def runs(fedtide, folder):
    """Two complete runs that keep their states; the folder."""
    for initializer in ("previous", "average"):
        assert fedtide("run", "-q", *SESSIONS, *KEPT, "--set", f"initializer={initializer}").status == 0
    return folder / "runs"


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


def states(runs):
    return {path: path.read_bytes() for path in runs.rglob("*") if path.match("state/*")}


def size_of(states):
    return sum(map(len, states.values()))


def test_states_of_complete_runs_are_pruned(fedtide, runs):
    """Nothing else is; what is needed to continue, to repair, or by another process stays."""
    average, previous = sorted(path for path in runs.glob("*-s0-*"))
    used, damaged, begun = (
        shutil.copytree(average, runs / name, ignore=shutil.ignore_patterns("*.lock*"))
        for name in ("a_used", "damaged", "begun")
    )
    (damaged / "model.pt").unlink()
    (begun / "summary.json").unlink()
    before, others = states(runs), contents(runs)
    with held(used / ".lock", "used"):
        found = fedtide("check", "--prune")
    freed = {path: content for path, content in before.items() if path.parts[-3] in (average.name, previous.name)}
    assert found.status == 1
    assert found.out == [
        "damaged: model.pt is missing",
        "5 runs: 2 intact, 1 unfinished, 1 running, 1 damaged: damaged",
        f"{size_of(freed):,} bytes of checkpoints of 2 runs removed",
    ]
    assert states(runs) == {path: content for path, content in before.items() if path not in freed}
    assert contents(runs) == others
    shutil.rmtree(damaged)
    found = fedtide("check", "--prune", "--json")
    assert found.status == 0
    sizes = {each["name"]: each["freed"] for each in json.loads(found.out[0])}
    kept = {path: content for path, content in before.items() if path.parts[-3] == used.name}
    assert sizes == dict.fromkeys(sizes, 0) | {used.name: size_of(kept)}
    assert len(sizes) == 4
    assert fedtide("check").out == ["4 runs: 3 intact, 1 unfinished"]
    assert fedtide("check", "--prune").out[1] == "0 bytes of checkpoints of 0 runs removed"


def contents(runs):
    """All other files but locks."""
    found = (path for path in runs.rglob("*") if path.is_file() and not path.name.startswith(".lock"))
    return {path: path.read_bytes() for path in found if not path.match("state/*")}
