"""Rules of ``stop``: where a run ends, also resumed and with two processes; what reads such runs; what is refused."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import Fedtide, sets
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.check import check_run
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.studies.tuning.space import Space
from small_runs import Small, execute, in_parts
from small_runs import history as rows


def after_best(values: list[float], patience: int) -> int:
    """The round in which a score has been without a better value for so many rounds."""
    return next(n for n in range(1, len(values) + 1) if n - 1 - values.index(max(values[:n])) >= patience)


@pytest.fixture(scope="module")
def whole(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve rounds without rules."""
    runs = tmp_path_factory.mktemp("whole")
    execute(twelve(small), runs, name="x")
    return runs / "x"


def twelve(small: Small, **changes: Any) -> RunSettings:
    """Twelve rounds in which the accuracy goes up and down."""
    return small(scenario={"rounds": 12}, local={"lr": 2.0, "batch_size": 4}, algorithm="fedavg", **changes)


def test_a_run_without_rules_has_no_trace_of_them(small: Small, whole: Path) -> None:
    assert "stop" not in twelve(small).canonical()
    assert "stop" not in (whole / "settings.json").read_text()
    assert "stopped" not in (whole / "summary.json").read_text()


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("rule", ["target", "patience", "bytes", "simulated_seconds"])
def test_each_rule_ends_the_run_after_the_first_evaluated_round_in_which_it_holds(
    rule: str, every: int, small: Small, whole: Path, tmp_path: Path
) -> None:
    history = rows(whole)
    scores = [float(row["test_accuracy"]) for row in history]
    spent = [int(row["bytes_up"]) + int(row["bytes_down"]) for row in history]
    times = [sum(float(row["latency"]) for row in history[: n + 1]) for n in range(12)]
    evaluated = [n for n in range(1, 13) if n % every == 0]
    seen = [scores[n - 1] for n in evaluated]
    limits = {"target": sorted(scores)[4], "patience": 1, "bytes": spent[4], "simulated_seconds": times[4]}
    first = {
        "target": next(n for n in evaluated if scores[n - 1] >= limits["target"]),
        "patience": evaluated[after_best(seen, 1) - 1] if every == 1 or seen != sorted(seen) else 12,
        "bytes": next(n for n in evaluated if n >= 5),
        "simulated_seconds": next(n for n in evaluated if n >= 5),
    }[rule]
    lines: list[str] = []
    settings = twelve(small, stop={rule: limits[rule]}, evaluation={"every": every})
    summary = execute(settings, tmp_path, name="x", log=lines.append)
    assert (summary["state"], summary["rounds"]) == ("complete", first)
    assert [row["bytes_up"] for row in rows(tmp_path / "x")] == [row["bytes_up"] for row in history[:first]]
    assert float(rows(tmp_path / "x")[-1]["test_accuracy"]) == scores[first - 1]
    if every == 1:
        assert rows(tmp_path / "x") == history[:first]
    if first < 12:
        assert f"(stop.{rule} = {limits[rule]:g})" in summary["stopped"]
        assert any(f"stopped after round {first} of 12: {summary['stopped']}" in line for line in lines)
    else:
        assert "stopped" not in summary
    assert check_run(tmp_path / "x").state == "intact"


@pytest.mark.parametrize("interrupted", [1, 3, 5])
def test_a_resumed_run_ends_with_the_same_round(
    interrupted: int, small: Small, tmp_path: Path, stop_after: Any, whole: Path
) -> None:
    scores = [float(row["test_accuracy"]) for row in rows(whole)]
    settings = twelve(small, stop={"patience": 2})
    once = execute(settings, tmp_path / "a", name="x")
    assert once["rounds"] == after_best(scores, 2)
    twice = in_parts(settings, tmp_path / "b", stop_after, interrupted)
    assert twice == {**once, "seconds": twice["seconds"]}
    assert rows(tmp_path / "a/x") == rows(tmp_path / "b/x")
    assert (tmp_path / "a/x/model.pt").read_bytes() == (tmp_path / "b/x/model.pt").read_bytes()
    assert execute(settings, tmp_path / "b", name="x") == twice  # nothing to do


def test_a_run_that_was_killed_before_its_summary_trains_no_further_round(small: Small, tmp_path: Path) -> None:
    settings = twelve(small, stop={"bytes": 1}, checkpoint={"every": 2, "keep_finished": True})
    once = execute(settings, tmp_path, name="x")
    (tmp_path / "x/summary.json").unlink()
    (tmp_path / "x/model.pt").unlink()
    assert execute(settings, tmp_path, name="x") == once
    assert len(RunDirectory(tmp_path / "x").history()) == once["rounds"] == 1


@pytest.mark.slow
def test_two_processes_end_together(fedtide: Fedtide, folder: Path) -> None:
    two = ["--set", "engine.devices=2", "--set", "stop.bytes=1", "--name", "two", "--quiet"]
    called = subprocess.run([sys.executable, "-m", "fedtide", "run", *two], capture_output=True, text=True, check=True)
    alone = fedtide("run", "--set", "stop.bytes=1", "--name", "one", "--json", "--quiet")
    assert len(rows(folder / "runs/two")) == 1 == json.loads(alone.out[-1])["rounds"]
    assert re.fullmatch(
        r"runs/two: .*; stopped after round 1: [\d,]+ bytes of traffic \(stop.bytes = 1\)", called.stdout.strip()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["stop.target=80"], "stop.target = 80: accuracy is a share, above 0 and at most 1"),
        (["stop.target=0"], "stop.target = 0: accuracy is a share, above 0 and at most 1"),
        (["stop.patience=0"], "stop.patience = 0: should be greater than or equal to 1"),
        (["stop.bytes=-1"], "stop.bytes = -1: should be greater than 0"),
        (["stop.simulated_seconds=1", "costs.wireless=false"], "requires costs.wireless: true"),
        (["stop.rounds=3"], "unknown key 'stop.rounds'"),
        (["stop.target=0.5", "erase=[{name: retrain, clients: [0], at: 2}]"], "leave out stop, or erase"),
    ],
)
def test_wrong_rules_are_one_line(changes: list[str], message: str, fedtide: Fedtide, folder: Path) -> None:
    assert message in fedtide("run", *sets(*changes)).refusal
    assert not (folder / "runs").exists()


def test_trials_have_no_rules_and_contributions_refuse_them(fedtide: Fedtide, folder: Path) -> None:
    params = Params.read(folder / "params.yaml", ["stop.target=0.9", "tune.seed=7"])
    assert Space(params).base == Space(Params.read(folder / "params.yaml", ["tune.seed=7"])).base
    assert "remove stop" in fedtide("contribution", "--set", "stop.target=0.9").refusal


@pytest.mark.slow
def test_the_report_compares_shared_rounds_and_says_so(fedtide: Fedtide, folder: Path) -> None:
    rules = "algorithms={slow: {name: fedavg, with: {local: {lr: 1.0e-6}}}}"
    grid = ("compare={algorithms: [fedavg, slow], seeds: [0, 1], workers: 1}", "stop.target=0.3", "report.last=2")
    settings = sets(rules, *grid, "scenario={name: static, num_clients: 3, rounds: 9}", "local.lr=0.5")
    called = fedtide("compare", *settings, "--json")
    assert called.status == 0
    summaries = json.loads(called.out[-1])
    fast, slow = summaries[:2], summaries[2:]
    assert [each["rounds"] for each in slow] == [9, 9]
    assert all("stopped" in each and each["rounds"] < 9 for each in fast)
    again = fedtide("compare", *settings)
    assert sum("already complete" in line for line in again.err) == 4
    shared = min(each["rounds"] for each in fast)
    report = fedtide("report", *settings, "--json")
    assert report.status == 0
    facts = json.loads(report.out[-1])
    assert facts["complete"] == facts["total"] == 4
    (caveat,) = [line for line in facts["warnings"] if "ended early" in line]
    assert f"the first {shared} rounds" in caveat
    for each in fast:
        assert f"seed {each['seed']} after round {each['rounds']}: {each['stopped']}" in caveat
    page = (folder / "report/report.html").read_text()
    assert "Cost of the target" in page
    assert "&gt; 9" in page
    assert "not reached" not in page
    metrics = json.loads((folder / "report/metrics.json").read_text())
    finals = [float(rows(folder / "runs" / each["run_key"])[shared - 1]["test_accuracy"]) for each in slow]
    assert metrics["slow/previous/final_mean"] == pytest.approx(sum(finals) / 2)
    assert "fedavg/previous/rounds_to_target_mean" not in metrics
    assert fedtide("report", *settings, *sets("report.target=0.3")).status == 0
    metrics = json.loads((folder / "report/metrics.json").read_text())
    assert metrics["fedavg/previous/rounds_to_target_mean"] == sum(each["rounds"] for each in fast) / 2
