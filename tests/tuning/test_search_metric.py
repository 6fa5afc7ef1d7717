"""What a search optimizes: every score on the validation split, with its direction, recorded by the trials themselves."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from searches import scores, search, table

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import RunDirectory, read_json
from fedtide.settings.params import Params
from fedtide.studies.tuning.space import Space
from fedtide.studies.tuning.trial import evaluated_rounds
from fedtide.world.timeline import HeldOut
from support import deal, timeline

pytestmark = pytest.mark.usefixtures("without_figures")
Make = Callable[..., Params]


@pytest.mark.parametrize(("algorithm", "column"), [("local", "served"), ("fedavg", "client")])
def test_clients_are_evaluated_with_the_models_they_are_served(
    params: Make, tmp_path: Path, algorithm: str, column: str
) -> None:
    """On validation samples; FedAvg's clients are served the global model."""
    chosen = params({"trials": 2, "metric": "served_accuracy_worst_decile", "prune": False}, algorithm=algorithm)
    result = search(chosen, tmp_path)
    rows = table(tmp_path)
    for row in rows:
        assert float(row["value"]) == scores(tmp_path, row["run"], f"{column}_accuracy_worst_decile")[-1]
    assert result.value == max(float(row["value"]) for row in rows)


def test_local_steps_are_searched_for_where_there_are_some(params: Make, tmp_path: Path) -> None:
    wanted = {"trials": 1, "metric": "finetuned_accuracy_mean", "prune": False}
    result = search(params(wanted, evaluation={"clients_every": 1, "finetune_steps": 2}), tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    assert result.value == scores(tmp_path, run.name, "finetuned_accuracy_mean")[-1]


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["excess", "memory_left"])
def test_the_strength_of_an_eraser_is_searched_for(params: Make, tmp_path: Path, measure: str) -> None:
    """A model that is over-erased is as bad as one that remembers as much."""
    eraser = {"name": "puf", "form": "special", "clients": [0], "at": 3}
    space = {"erase.puf.eta": {"choices": [0.0, 2.0, 40.0]}}
    tune = {"trials": 3, "metric": f"erased_{measure}", "over": "end", "sampler": {"name": "grid"}, "space": space}
    search(params(tune, erase=[eraser], algorithm="fedavg", evaluation={"erased": False}), tmp_path)
    signed, rows = [], table(tmp_path)
    for row in rows:
        signed.append(float(RunDirectory(tmp_path / "runs" / row["run"]).history()[-1][f"erased_{measure}"]))
        assert float(row["value"]) == abs(signed[-1])
    assert min(signed) < 0 < max(signed)
    best = yaml.safe_load((tmp_path / "tuning" / "best.yaml").read_text())["algorithms"]["fedavg"]["with"]["erase"]
    assert best[0]["eta"] == float(min(rows, key=lambda row: float(row["value"]))["erase.puf.eta"])


def test_a_measure_that_no_trial_has_is_told(params: Make, tmp_path: Path) -> None:
    """Client 1 takes no part before the request."""
    eraser = {"name": "rollback", "clients": [1], "at": 1}
    chosen = params(
        {"trials": 1, "metric": "erased_excess"},
        erase=[eraser],
        algorithm="fedavg",
        participation={"name": "fixed", "fraction": 0.5},
    )
    with pytest.raises(SettingsError, match="erased_excess: it is undefined in all 1 trials"):
        search(chosen, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "best"), [("auroc", max), ("calibration_error", min)])
def test_the_trials_record_the_metric_and_the_best_one_wins(
    params: Make, tmp_path: Path, metric: str, best: Callable[[Any], float]
) -> None:
    result = search(params({"trials": 4, "metric": f"validation_{metric}", "prune": False}), tmp_path)
    rows = table(tmp_path)
    for row in rows:
        assert float(row["value"]) == scores(tmp_path, row["run"], f"validation_{metric}")[-1]
        settings = read_json(tmp_path / "runs" / row["run"] / "settings.json") or {}
        assert settings["evaluation"]["metrics"] == [metric]
    assert result.value == best(float(row["value"]) for row in rows)
    assert "metrics" not in (tmp_path / "tuning" / "best.yaml").read_text()


@pytest.mark.slow
def test_trials_are_pruned_by_the_metric(params: Make, tmp_path: Path) -> None:
    """Rates that learn nothing against rates that do, after two trials that are never pruned."""
    chosen = {"pruner": {"n_startup_trials": 2}, "space": {"local.lr": {"choices": [1e-9, 0.5]}}}
    for prune in (True, False):
        tune = {"trials": 5, "metric": "validation_auroc", "prune": prune, **chosen}
        search(params(tune), tmp_path / str(prune))
    rows = table(tmp_path / "True")
    pruned = [row for row in rows if row["outcome"] == "pruned"]
    assert {row["local.lr"] for row in rows if row["outcome"] == "complete"} == {"1e-09", "0.5"}
    assert {row["local.lr"] for row in pruned} == {"1e-09"}
    assert {row["outcome"] for row in table(tmp_path / "False")} == {"complete"}


def test_other_metrics_of_the_runs_stay_and_the_default_adds_none(params: Make) -> None:
    chosen = {"evaluation": {"metrics": ["macro_f1"]}}
    assert Space(params()).base.evaluation.metrics == ()
    assert Space(params({"metric": "validation_loss_next"})).base.evaluation.metrics == ()
    assert Space(params({"metric": "validation_auroc"}, **chosen)).base.evaluation.metrics == ("macro_f1", "auroc")
    assert Space(params({"metric": "validation_macro_f1_next"}, **chosen)).base.evaluation.metrics == ("macro_f1",)


def test_rounds_of_the_last_period_have_no_next_one() -> None:
    """Three periods of 10 rounds: the last tenth of a run that is evaluated ahead ends with the second."""
    session_of_round = np.repeat(np.arange(3), 10)
    nothing = np.zeros(0, dtype=np.int64)
    world = replace(
        timeline(deal((3,)), [{0: 0}] * 30, session_of_round=session_of_round.tolist()),
        held_out=[HeldOut(nothing, nothing)] * 3,
        held_out_of_round=session_of_round,
        next_of_round=np.where(session_of_round < 2, session_of_round + 1, -1),
    )
    assert evaluated_rounds(world, "end", 1) == (28, 29, 30)
    assert evaluated_rounds(world, "end", 1, ahead=True) == (18, 19, 20)
    assert evaluated_rounds(world, "changes", 1, ahead=True) == tuple(range(11, 21))
    assert evaluated_rounds(world, "end", 7, ahead=True) == (18, 19, 20)  # the end of a period is always evaluated
    assert [world.looks_ahead_at(t) for t in (9, 18, 19, 29)] == [True, False, True, False]
