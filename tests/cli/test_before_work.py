"""Commands before and without their work: dry runs, rehearsals, limits on the wall-clock time."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from alarms import alarm
from commands import Fedtide, sets

__all__ = ["alarm"]

GRID = sets("compare={algorithms: [fedavg, fedprox], seeds: [0, 1], workers: 1}", "scenario.label_overlap=0.5")
PLAN = re.compile(
    r"(\d+) runs, (\d+) already ended; time: (unknown|about [\d.]+ min); largest run: at least [\d.]+ [MG]B"
)


def state(folder: Path) -> dict[str, str]:
    """Every file of a folder and a hash of its content."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def plan(line: str) -> tuple[int, int, str]:
    found = PLAN.search(line)
    assert found, line
    return int(found[1]), int(found[2]), found[3]


@pytest.mark.slow
def test_a_dry_run_counts_and_writes_nothing(fedtide: Fedtide, folder: Path) -> None:
    fedtide("download", "--out", str(folder / "dataset.json"))
    before = state(folder)
    called = fedtide("compare", *GRID, "--dry-run")
    assert (called.status, plan(called.out[-1])) == (0, (4, 0, "unknown"))
    assert state(folder) == before
    assert fedtide("compare", *GRID, "--set", "compare.algorithms=[fedavg]").status == 0
    before = state(folder)
    runs, ended, time = plan(fedtide("compare", *GRID, "--dry-run").out[-1])
    found = json.loads(fedtide("compare", *GRID, "--dry-run", "--json").out[-1])
    assert (found["runs"], found["ended"]) == (4, 2)
    assert found["seconds"] > 0
    assert found["bytes"] > 0
    assert (runs, ended) == (4, 2)
    assert time.startswith("about ")
    assert state(folder) == before


@pytest.mark.slow
def test_the_time_is_that_of_the_label(fedtide: Fedtide, folder: Path) -> None:
    assert fedtide("compare", *GRID).status == 0
    longer = ["--set", "scenario.rounds_per_session=300000", "--set", "compare.algorithms=[fedavg]"]
    runs = [json.loads(path.read_text()) for path in (folder / "runs").glob("fedavg-*/summary.json")]
    pace = sum(run["seconds"] / run["rounds"] for run in runs) / len(runs)
    found = plan(fedtide("compare", *GRID, *longer, "--dry-run").out[-1])
    assert found[:2] == (2, 0)
    assert float(found[2].split()[1]) == pytest.approx(2 * 600000 * pace / 60, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--dry-run", "--rehearse"])
def test_what_the_last_cell_refuses_is_named(option: str, fedtide: Fedtide, folder: Path) -> None:
    wrong = "algorithms={odd: {name: fedavg, with: {communication: intervals, uplink: [sign]}}}"
    called = fedtide("compare", *sets(wrong, "compare={algorithms: [fedavg, odd], workers: 1}"), option)
    assert called.status == (2 if option == "--dry-run" else 1)
    assert "communication intervals averages inside rounds" in called.err[-1]
    assert "odd" in called.err[-1]
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_a_rehearsal_trains_one_round_of_each_cell_and_leaves_nothing(fedtide: Fedtide, folder: Path) -> None:
    fedtide("download", "--out", str(folder / "dataset.json"))
    before = state(folder)
    called = fedtide("compare", *GRID, "--set", "evaluation.every=4", "--rehearse", "--json")
    assert called.status == 0
    assert [run["rounds"] for run in json.loads(called.out[-1])] == [1, 1]
    assert sum("stopped after round 1 of 4" in line for line in called.err) == 2
    assert state(folder) == before


@pytest.mark.slow
def test_a_rehearsal_of_erasure_and_of_clients_models(fedtide: Fedtide, folder: Path) -> None:
    erasing = "algorithms={gone: {name: fedavg, with: {erase: [{name: retrain, clients: [0], at: 2}]}}}"
    grid = "compare={algorithms: [gone, local, ditto], workers: 1}"
    static = "scenario={name: static, num_clients: 3, rounds: 9}"
    called = fedtide("compare", *sets(erasing, grid, static), "--rehearse")
    assert called.status == 0, called.err
    assert sum("stopped after round 1 of 9" in line for line in called.err) == 3


@pytest.mark.slow
def test_a_dry_run_of_a_search_counts_trials(fedtide: Fedtide, folder: Path) -> None:
    search = ["tune", "--set", "tune={trials: 3, workers: 1, seeds: [5, 6], prune: false}"]
    called = fedtide(*search, "--dry-run")
    assert (called.status, plan(called.out[-1])) == (0, (6, 0, "unknown"))
    assert not (folder / "tuning").exists()
    assert not (folder / "runs").exists()
    assert fedtide(*search).status == 0
    before = state(folder)
    assert plan(fedtide(*search, "--set", "tune.trials=5", "--dry-run").out[-1])[:2] == (10, 6)
    assert state(folder) == before


@pytest.mark.slow
def test_a_comparison_ends_with_its_time_and_resumes(fedtide: Fedtide, folder: Path, alarm: str) -> None:
    static = "scenario={name: static, num_clients: 4, rounds: 100000}"
    grid = ["compare", *sets(alarm.format(5), static, "compare={seeds: [0, 1], workers: 1}"), "--seconds", "600"]
    done = [0]
    for _ in range(2):
        called = fedtide(*grid)
        left = "--seconds 600: 2 of 2 runs left; re-run the same command to resume"
        assert (called.status, called.err[-1]) == (0, left)
        (run,) = (folder / "runs").iterdir()
        done.append(len((run / "history.csv").read_text().splitlines()))
    assert done == sorted({*done})
    assert (run / "events.jsonl").read_text().count('"interrupted"') == 2


@pytest.mark.slow
def test_a_search_ends_with_its_time_and_resumes(fedtide: Fedtide, folder: Path, alarm: str) -> None:
    static = "scenario={name: static, num_clients: 4, rounds: 8}"
    search = ["tune", *sets(alarm.format(5), static, "tune={trials: 2, workers: 1, seconds: 600, prune: false}")]
    called = fedtide(*search)
    assert (called.status, called.out[-1]) == (0, "stopped after 0 of 2 trials; re-run the same command to resume")
    called = fedtide(*search)
    assert (called.status, called.out[-1][:36]) == (0, "tune.seconds = 600: stopped after 1 ")
    assert (folder / "tuning/best.yaml").is_file()


@pytest.mark.parametrize("seconds", ["0", "inf"])
@pytest.mark.parametrize("words", [("tune", "--set", "tune.seconds="), ("compare", "--seconds=")])
def test_no_time_and_endless_time_are_refused(
    words: tuple[str, ...], seconds: str, fedtide: Fedtide, folder: Path
) -> None:
    assert fedtide(*words[:-1], words[-1] + seconds).status == 2
    assert not (folder / "runs").exists()
