"""Trials of several seeds: their value is the mean, the first one is pruned, a killed trial goes on with what is missing."""

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from searches import assert_same_files, begun, lines_of, scores, search, table

from fedtide.records.run_directory import read_json
from fedtide.settings.params import Params
from fedtide.studies.tuning.study import TuneResult

pytestmark = pytest.mark.usefixtures("without_figures")
Make = Callable[..., Params]
SEEDS = [1000, 7, 8]
SEVERAL = {"seeds": SEEDS, "trials": 5, "pruner": {"n_startup_trials": 2, "n_warmup_steps": 0}}


@pytest.fixture(scope="module")
def found(params: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TuneResult]:
    """An uninterrupted search of one worker."""
    home = tmp_path_factory.mktemp("found")
    return home, search(params(SEVERAL), home)


@pytest.mark.slow
def test_the_value_of_a_trial_is_the_mean_of_its_seeds(found: tuple[Path, TuneResult]) -> None:
    home, result = found
    complete = [row for row in table(home) if row["outcome"] == "complete"]
    assert result.trials == len(table(home)) == 5
    for row in complete:
        each = [scores(home, f"{row['run']}-{seed}")[-1] for seed in SEEDS]
        assert [float(row[f"seed {seed}"]) for seed in SEEDS] == each
        assert float(row["value"]) == statistics.fmean(each)
        assert len(set(each)) > 1
        for seed in SEEDS:
            settings = read_json(home / "runs" / f"{row['run']}-{seed}" / "settings.json") or {}
            assert settings["seed"] == seed
            assert settings["algorithm"]["mu"] == float(row["algorithm.mu"])
    assert result.value == max(float(row["value"]) for row in complete)


@pytest.mark.slow
def test_a_poor_trial_is_given_up_in_its_first_seed(found: tuple[Path, TuneResult]) -> None:
    home, _ = found
    rows = table(home)
    assert {row["outcome"] for row in rows} == {"complete", "pruned"}
    runs = {path.name for path in (home / "runs").iterdir()}
    assert runs == {
        f"{row['run']}-{seed}" for row in rows for seed in (SEEDS if row["outcome"] == "complete" else SEEDS[:1])
    }
    for row in rows:
        if row["outcome"] == "pruned":
            assert [row[f"seed {seed}"] for seed in SEEDS] == [""] * 3


def test_the_first_seed_alone_is_the_search_of_one_seed(params: Make, tmp_path: Path) -> None:
    """The same study, to the name."""
    given: list[dict[str, Any]] = [{}, {"seeds": [7]}, {"seeds": [7, 8]}]
    alone, first, both = (search(params({"trials": 1, "seed": 7, **seeds}), tmp_path).study for seeds in given)
    assert alone == first != both


def times(home: Path) -> dict[str, int]:
    """When the runs that are complete were last written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in home.glob("runs/*/model.pt")}


@pytest.mark.slow
def test_a_killed_trial_goes_on_with_the_seeds_that_are_missing(
    found: tuple[Path, TuneResult], params: Make, tmp_path: Path
) -> None:
    """Killed before the first line about the end of its last complete trial, and after every one of these lines."""
    whole = found[0]
    last = [row["run"] for row in table(whole) if row["outcome"] == "complete"][-1]
    lines = lines_of(whole)
    start = next(place for place, line in enumerate(lines) if last.encode() in line)
    ended = next(place for place in range(start, len(lines)) if b'"outcome"' in lines[place])
    assert b'"values"' in lines[ended + 2]
    for count in range(ended, ended + 3):
        home = begun(whole, count, tmp_path / str(count))
        shutil.rmtree(home / "runs" / f"{last}-{SEEDS[-1]}")
        before = times(home)
        search(params(SEVERAL), home)
        assert_same_files(home, whole)
        assert {name: times(home)[name] for name in before} == before
        assert len(times(home)) == len(before) + 1


@pytest.mark.parametrize(("given", "named"), [({"seeds": [3, 4]}, "tune.seeds: 4"), ({"seed": 4}, "tune.seed = 4")])
def test_compared_seeds_are_named(params: Make, tmp_path: Path, given: dict[str, Any], named: str) -> None:
    lines: list[str] = []
    search(params({"trials": 1, **given}, compare={"seeds": [4]}), tmp_path, lines.append)
    assert lines[0].startswith(f"{named} is also in compare.seeds")


@pytest.mark.slow
def test_the_cost_is_the_mean_over_the_seeds_too(params: Make, tmp_path: Path) -> None:
    space = {"communication.budget.beta": {"low": 0.2, "high": 0.8}}
    search(params({"seeds": [1, 2], "trials": 2, "cost": "kappa", "space": space}, communication="intervals"), tmp_path)
    for row in table(tmp_path, "front"):
        costs = [statistics.fmean(scores(tmp_path, f"{row['run']}-{seed}", "kappa")) for seed in (1, 2)]
        assert float(row["kappa"]) == pytest.approx(statistics.fmean(costs), abs=1e-9)
