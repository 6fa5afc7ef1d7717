"""Searches: exactly as many trials as wanted, real runs on the validation split, results that can be used."""

import dataclasses
import os
import shutil
import signal
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from searches import assert_same_files, begun, journal, killed, lines_of, scores, search, table

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.storage.locks import held
from fedtide.federation.scoring.evaluator import Evaluator
from fedtide.records.run_directory import RunDirectory, read_json
from fedtide.settings.params import Params
from fedtide.studies.tuning import trial as trials
from fedtide.studies.tuning.study import TuneResult
from fedtide.studies.tuning.trial import Pruner, evaluated_rounds, score
from fedtide.world.building.drifting import with_drift
from fedtide.world.drift.base import Drift
from fedtide.world.timeline import Timeline
from small_runs import execute
from support import deal, settings, timeline, vectors

Make = Callable[..., Params]
PRUNED_LATER = 4  # trials that are always complete


@pytest.fixture(scope="module")
def found(params: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TuneResult]:
    """An uninterrupted search of one worker."""
    home = tmp_path_factory.mktemp("found")
    return home, search(params(), home)


@pytest.mark.slow
def test_every_trial_is_a_run_on_the_validation_split(found: tuple[Path, TuneResult]) -> None:
    home, result = found
    rows = table(home)
    assert result.trials == len(rows) == 8
    assert {row["run"] for row in rows} == {path.name for path in (home / "runs").iterdir()}
    for row in rows:
        settings = read_json(home / "runs" / row["run"] / "settings.json") or {}
        assert (settings["seed"], settings["evaluation"]["splits"]) == (1000, ["validation"])
        assert settings["algorithm"]["mu"] == float(row["algorithm.mu"])
        assert settings["local"]["lr"] == float(row["local.lr"])


@pytest.mark.usefixtures("without_figures")
def test_the_test_set_is_never_evaluated(params: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, looked = Evaluator.samples, []

    def watched(self: Evaluator, split: str, held_out: Any = None) -> Any:
        looked.append(split)
        return samples(self, split, held_out)

    monkeypatch.setattr(Evaluator, "samples", watched)
    search(params({"trials": 1}, evaluation={"splits": ["test", "validation"]}), tmp_path)
    assert set(looked) == {"validation"}


@pytest.mark.slow
def test_the_best_is_the_complete_trial_with_the_best_last_rounds(found: tuple[Path, TuneResult]) -> None:
    home, result = found
    complete = {row["run"]: row for row in table(home) if row["outcome"] == "complete"}
    for run, row in complete.items():
        assert float(row["value"]) == scores(home, run)[-1]  # a tenth of four rounds is the last
    best = max(complete.values(), key=lambda row: float(row["value"]))
    assert result.value == float(best["value"])
    assert result.best == {key: float(best[key]) for key in ("algorithm.mu", "local.lr")}


def test_trials_below_the_median_are_pruned_and_no_others(found: tuple[Path, TuneResult]) -> None:
    home, _ = found
    rows = table(home)
    assert "pruned" in {row["outcome"] for row in rows}
    complete: list[list[float]] = []
    for row in rows:
        curve = scores(home, row["run"])
        summary = RunDirectory(home / "runs" / row["run"]).summary() or {}
        assert (summary["state"], summary["rounds"]) == (row["outcome"], len(curve))
        medians = [statistics.median(values) for values in zip(*complete, strict=True)]
        best_so_far = [max(curve[: round_ + 1]) for round_ in range(len(curve))]
        worse = [value < median for value, median in zip(best_so_far, medians, strict=False)]
        if len(complete) < PRUNED_LATER:
            assert row["outcome"] == "complete"
        elif row["outcome"] == "pruned":
            assert worse[-1]
            assert not any(worse[:-1])
        else:
            assert not any(worse[:-1])  # after the last round there is nothing left to give up
        if row["outcome"] == "complete":
            complete.append(curve)


def test_the_best_settings_can_be_run(found: tuple[Path, TuneResult], tmp_path: Path) -> None:
    home, result = found
    best = Params.read(home / "tuning" / "best.yaml").run()
    assert {"algorithm.mu": best.algorithm.mu, "local.lr": best.local.lr} == result.best
    assert execute(best, tmp_path)["state"] == "complete"


@pytest.mark.usefixtures("without_figures")
def test_a_finished_search_goes_no_further_and_a_longer_one_only_the_rest(
    found: tuple[Path, TuneResult], params: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []

    def counted(*args: Any, **options: Any) -> Any:
        executed.append(options["name"])
        return run(*args, **options)

    run = trials.execute
    monkeypatch.setattr(trials, "execute", counted)
    search(params({"trials": 2}), tmp_path)
    assert len(executed) == 2
    search(params({"trials": 2}), tmp_path)
    assert len(executed) == 2
    assert search(params({"trials": 3}), tmp_path).trials == 3
    assert len(executed) == 3
    assert table(tmp_path) == table(found[0])[:3]


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_an_interrupted_search_ends_as_if_it_had_not_been(
    found: tuple[Path, TuneResult], params: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0

    def press_ctrl_c(self: Pruner, trainer: Any, module: Any, *_: Any) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 10:  # in the second round of the third trial
            signal.raise_signal(signal.SIGINT)

    lines: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(Pruner, "on_train_batch_start", press_ctrl_c)
        result = search(params(), tmp_path, lines.append)
    assert (result.stopped, result.trials) == (signal.SIGINT, 2)
    assert not (tmp_path / "tuning" / "best.yaml").exists()
    assert "stopped after 2 of 8 trials" in result.text

    result = search(params(), tmp_path)
    assert (result.stopped, result.trials) == (None, 8)
    assert_same_files(tmp_path, found[0])


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_a_killed_search_ends_as_if_it_had_not_been(
    found: tuple[Path, TuneResult], params: Make, tmp_path: Path
) -> None:
    killed(params(), tmp_path, workers=1, count=12)  # in the last round of the third trial
    assert len(list((tmp_path / "runs").iterdir())) == 3
    file = journal(tmp_path)
    file.with_name(f"{file.name}.lock").symlink_to(file)  # as if it had been writing
    with file.open("a") as stream:
        stream.write('{"op_code": 5, "tr')
    assert search(params(), tmp_path).trials == 8
    assert_same_files(tmp_path, found[0])


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_a_search_killed_between_any_two_lines_of_its_journal_ends_as_if_it_had_not_been(
    params: Make, tmp_path: Path
) -> None:
    """All of its runs are complete."""
    two, whole = params({"trials": 2, "prune": False}), tmp_path / "whole"
    search(two, whole)
    assert len(lines_of(whole)) > 10
    for count in range(1, len(lines_of(whole)), 3):
        home = begun(whole, count, tmp_path / str(count))
        search(two, home)
        assert_same_files(home, whole)
        assert len(list((home / "runs").iterdir())) == 2


@pytest.mark.slow
def test_two_workers_share_the_trials(params: Make, tmp_path: Path) -> None:
    lines: list[str] = []
    result = search(params({"workers": 2, "trials": 5}), tmp_path, lines.append)
    assert result.trials == len({row["run"] for row in table(tmp_path)}) == 5
    assert len(list((tmp_path / "runs").iterdir())) == 5
    assert [line.split()[0] for line in lines] == ["1/5", "2/5", "3/5", "4/5", "5/5"]


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_settings_make_the_study_and_its_size_does_not(params: Make, tmp_path: Path) -> None:
    first = search(params({"trials": 1}), tmp_path).study
    assert search(params({"trials": 1, "workers": 1}, compare={"seeds": [5]}), tmp_path).study == first
    changed = [
        params({"trials": 1, "seed": 1001}),
        params({"trials": 1, "metric": "validation_loss"}),
        params({"trials": 1, "space": {"local.lr": {"low": 0.1, "high": 0.2}}}),
        params({"trials": 1}, local={"steps": 1, "batch_size": 128}),
    ]
    assert len({first, *(search(file, tmp_path).study for file in changed)}) == 5


def test_trials_that_diverge_count_but_are_never_the_best(params: Make, tmp_path: Path) -> None:
    wild = {"local.lr": {"low": 1e20, "high": 1e30}}
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "best.yaml").write_text("of an earlier search")
    with pytest.raises(SettingsError, match="none of 2 trials is complete, all diverged"):
        search(params({"trials": 2, "space": wild}), tmp_path)
    assert [(row["outcome"], row["value"]) for row in table(tmp_path)] == [("diverged", "")] * 2
    assert not (tmp_path / "tuning" / "best.yaml").exists()


@pytest.mark.usefixtures("without_figures")
def test_only_one_process_works_on_a_search(params: Make, tmp_path: Path) -> None:
    study = search(params({"trials": 1}), tmp_path).study
    holder = rf"another process is working on this study \(process {os.getpid()} on .+ since .+\)"
    with held(tmp_path / "tuning" / f"{study}.lock", ""), pytest.raises(SettingsError, match=holder):
        search(params({"trials": 1}), tmp_path)


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("damage", [b'{"op_code": 5, "tr\n', b'{"op_code": 4}\n'])
def test_a_damaged_journal_is_one_line_and_without_it_the_runs_are_reused(
    found: tuple[Path, TuneResult], params: Make, tmp_path: Path, damage: bytes
) -> None:
    home = tmp_path / "home"
    shutil.copytree(found[0], home)
    lines = lines_of(home)
    journal(home).write_bytes(b"".join([*lines[:3], damage, *lines[3:]]))
    with pytest.raises(SettingsError, match=r"\.journal: the study journal is damaged \(.+\); delete this file"):
        search(params(), home)
    journal(home).unlink()
    before = {path: path.stat().st_mtime_ns for path in home.glob("runs/*/history.csv")}
    assert search(params(), home).best == found[1].best
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize(
    ("rounds", "evaluated", "expected"),
    [(4, [1, 2, 3, 4], 4.0), (20, range(1, 21), 19.5), (30, [7, 14, 21, 28, 30], 29.0)],
)
def test_the_value_is_the_mean_over_the_last_tenth(rounds: int, evaluated: Any, expected: float) -> None:
    history = [
        {"round": str(round_), "m": f"{round_:.1f}" if round_ in evaluated else ""} for round_ in range(1, rounds + 1)
    ]
    assert score(history, "m", evaluated_rounds(timeline(deal((3,)), [{0: 0}] * rounds), "end", 1)) == expected


@pytest.fixture(scope="module")
def sessions() -> Timeline:
    """Sessions of 12 rounds, the first a pilot."""
    session_of_round = [session for session in range(5) for _ in range(12)]
    present = [{session % 2: session % 2} for session in session_of_round]
    return timeline(deal((3, 3)), present, session_of_round=session_of_round, notes={"pilot_sessions": 1})


def test_rounds_after_the_changes_that_count(sessions: Timeline) -> None:
    """From the fourth session on, the first ten rounds of each; without any change, the end."""
    changes = (*range(37, 47), *range(49, 59))
    single = timeline(deal((3,)), [{0: 0}] * 4)
    assert evaluated_rounds(single, "auto", 1) == evaluated_rounds(single, "end", 1) == (4,)
    assert evaluated_rounds(sessions, "auto", 1) == evaluated_rounds(sessions, "changes", 1) == changes
    pilots = dataclasses.replace(sessions, notes={"pilot_sessions": 5})
    assert evaluated_rounds(pilots, "auto", 1) == evaluated_rounds(pilots, "end", 1)


def test_rounds_after_drifts_count_once_and_come_before_session_changes() -> None:
    """Client 0 drifts in rounds 5 and 12 (from 0), client 1 in round 27 of 30; sessions of 10 rounds."""
    at = np.arange(30)
    of = np.stack([(at >= 5) & (at < 12), at >= 27], axis=1).astype(np.int64)
    steps = [[int(value) for value in row] for row in of]
    chosen = settings(drift={"name": "table", "steps": steps}).drift
    world = timeline(deal((3, 3)), [{0: 0, 1: 1}] * 30, session_of_round=[t // 10 for t in range(30)])
    drifting = with_drift(world, plugins.create(Drift, chosen), vectors(6), seed=0)
    expected = (*range(6, 23), 28, 29, 30)
    assert evaluated_rounds(drifting, "drifts", 1) == evaluated_rounds(drifting, "auto", 1) == expected
    changes = evaluated_rounds(world, "changes", 1)
    assert evaluated_rounds(drifting, "changes", 1) == evaluated_rounds(world, "auto", 1) == changes


def test_a_search_under_drift_is_scored_after_it(params: Make, tmp_path: Path, without_figures: None) -> None:
    drift = {"name": "sudden", "start": 2}
    space = {"local.lr": {"choices": [0.01, 0.1]}}
    result = search(params({"trials": 2, "space": space, "prune": False}, drift=drift), tmp_path)
    rows = table(tmp_path)
    for row in rows:
        assert float(row["value"]) == pytest.approx(statistics.fmean(scores(tmp_path, row["run"])[2:]), abs=1e-12)
    assert result.value == max(float(row["value"]) for row in rows)


def test_rounds_that_are_never_evaluated_cannot_be_searched_over(sessions: Timeline) -> None:
    """36, 48 and 60 are past the first ten of a session, 35 too, 40 is not; the last round always counts."""
    assert evaluated_rounds(sessions, "changes", 40) == (*range(37, 47), *range(49, 59))
    for every in (12, 35):
        with pytest.raises(SettingsError, match=rf"^evaluation\.every = {every}: no round of tune\.over = 'auto'"):
            evaluated_rounds(sessions, "auto", every)
    assert evaluated_rounds(sessions, "end", 100) == tuple(range(55, 61))
