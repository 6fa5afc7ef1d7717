"""Samplers and pruners by name, and what other programs see of a search."""

import importlib.util
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import optuna
import pytest
from searches import begun, journal, lines_of, search, table

from fedtide.settings.params import Params
from fedtide.studies.tuning.samplers import PRUNERS, Proposals
from fedtide.studies.tuning.space import Space

pytestmark = pytest.mark.usefixtures("without_figures")
Make = Callable[..., Params]
MIXED = {
    "local.lr": {"low": 0.01, "high": 1.0, "log": True},
    "local.epochs": {"low": 1, "high": 3},
    "local.nesterov": {"choices": [True, False]},
}
WARM = {"local": {"steps": 2, "batch_size": 128, "momentum": 0.9}}
ONE_ROUND = {"scenario": {"name": "static", "rounds": 1, "num_clients": 2}}
CMAES = pytest.mark.skipif(importlib.util.find_spec("cmaes") is None, reason="needs cmaes")


def proposals(params: Params) -> Proposals:
    return Proposals(params.experiment.tune, Space(params).dimensions)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "given"),
    [
        ("tpe", {"n_startup_trials": 1}),
        ("gp", {"n_startup_trials": 1}),
        ("random", {}),
        ("grid", {"points": 2}),
        pytest.param("cmaes", {"popsize": 2}, marks=CMAES),
    ],
)
def test_a_search_with_each_sampler_repeats_after_a_kill(
    params: Make, tmp_path: Path, sampler: str, given: dict[str, int]
) -> None:
    """Killed while the last of its three trials was sampled, and, which no sampler sees, while it ran."""
    space = {key: value for key, value in MIXED.items() if sampler != "cmaes" or "low" in value}
    file = params({"sampler": {"name": sampler, **given}, "trials": 3, "prune": False, "space": space}, **WARM)
    whole = tmp_path / "whole"
    search(file, whole)
    rows = table(whole)
    assert len({tuple(row.items())[3:] for row in rows}) == 3
    lines = lines_of(whole)
    last = [place for place, line in enumerate(lines) if b'"datetime_start"' in line][-1]
    for count in (last + 2, len(lines) - 2) if sampler == "tpe" else (last + 2,):
        home = begun(whole, count, tmp_path / str(count))
        search(file, home)
        same = 2 if sampler == "cmaes" else 3  # which takes the number of Optuna's trial into its key
        assert table(home)[:same] == rows[:same]


@pytest.mark.slow
def test_samplers_are_other_studies_and_a_switched_off_pruner_is_one(params: Make, tmp_path: Path) -> None:
    def name(**tune: Any) -> str:
        return search(params({"trials": 1, **tune}, **ONE_ROUND), tmp_path).study

    usual, unpruned = name(), name(prune=False)
    assert usual == name(sampler={"n_startup_trials": 10}, pruner={"name": "median", "n_startup_trials": 4})
    assert unpruned == name(pruner="none")
    others = [name(sampler="random"), name(sampler={"n_startup_trials": 3}), name(pruner="hyperband"), unpruned]
    assert len({usual, *others}) == 5


@pytest.mark.slow
def test_a_grid_is_every_combination_once_and_more_trials_find_nothing_to_do(params: Make, tmp_path: Path) -> None:
    space = {**MIXED, "local.epochs": {"low": 1, "high": 2}}
    grid = {"sampler": {"name": "grid", "points": 3}, "prune": False, "space": space}
    lines: list[str] = []
    search(params({**grid, "trials": 2}, **WARM, **ONE_ROUND), tmp_path)
    result = search(params({**grid, "trials": 40}, **WARM, **ONE_ROUND), tmp_path, lines.append)
    assert lines[0] == "tune.trials = 40: the grid has 12 points, so 12 trials will run"
    assert result.trials == 12
    seen = [(float(row["local.lr"]), int(row["local.epochs"]), row["local.nesterov"]) for row in table(tmp_path)]
    rates = (0.01, 0.1, 1.0)
    assert sorted((round(rate, 12), *rest) for rate, *rest in seen) == list(product(rates, (1, 2), ("False", "True")))
    assert seen != sorted(seen)
    assert search(params({**grid, "trials": 40}, **WARM, **ONE_ROUND), tmp_path).trials == 12


@pytest.mark.parametrize("name", [name for name in PRUNERS if name != "median"])
def test_a_search_with_each_pruner(params: Make, tmp_path: Path, name: str) -> None:
    needed = {"percentile": {"percentile": 25.0}, "threshold": {"lower": 0.0}}
    assert search(params({"trials": 2, "pruner": {"name": name, **needed.get(name, {})}}), tmp_path).trials == 2


@pytest.mark.slow
def test_optuna_loads_the_study_from_its_journal(params: Make, tmp_path: Path) -> None:
    result = search(params({"trials": 3}), tmp_path)
    file = journal(tmp_path)
    before = file.read_bytes()
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file)))
    study = optuna.load_study(study_name=file.stem, storage=storage)
    assert (study.metric_names, study.best_value) == (["validation_accuracy"], result.value)
    assert study.best_params == result.best
    runs = study.trials_dataframe()["user_attrs_run"].tolist()
    assert sorted(runs) == sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert file.read_bytes() == before
    assert search(params({"trials": 4}), tmp_path).trials == 4
