"""Measures of what erased clients have left."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from erasers.erased_runs import ERASERS, SIZES, Seen, request, run, world
from fedtide.federation.scoring import erased
from fedtide.world.dataset import Dataset, Origins
from support import images, vectors

UNIT = json.loads((Path(__file__).parents[1] / "golden" / "erasure_family.json").read_text(encoding="utf-8"))["unit"]
COHORTS = [[0, 2], [1, 2], [0, 1, 3], [0, 1], [2, 3], [0, 2, 3], [0, 3]]


def owned() -> Dataset:
    """Samples that belong to clients, for training and for tests."""
    drawn = vectors(36)
    owners = np.repeat(np.arange(4), SIZES)
    return replace(
        drawn,
        train_inputs=drawn.train_inputs[:18],
        train_labels=drawn.train_labels[:18],
        test_inputs=drawn.train_inputs[18:],
        test_labels=drawn.train_labels[18:],
        origins=Origins(owners, owners, clients=tuple("abcd")),
    )


def measured(method: str, **values: Any) -> Seen:
    """A run whose clients have test samples of their own."""
    there = replace(world(7), origin_of_client=np.arange(4))
    local = {"epochs": 4, "batch_size": 2, "lr": 0.5}
    return run([request(method, ["b"])], there, COHORTS, data=owned(), local=local, **values)


def test_an_exact_erasure_has_left_nothing() -> None:
    for row in measured("retrain").rows[4:]:
        names = ("gap", "excess", "excess_test", "retained_change", "retained_worst", "retained_hurt", "variation")
        assert [row[f"erased_{name}"] for name in names] == [0] * len(names)
        assert [row[f"erased_{name}"] for name in ("remembered", "remembered_test", "auc_calibrated")] == [0.5] * 3
        assert row["erased_auc"] == row["erased_auc_counterfactual"]
        assert row["erased_agreement"] == 1
        assert row["erased_auc_low"] < row["erased_auc"] < row["erased_auc_high"]


def test_nothing_erased_has_left_everything() -> None:
    rows = measured("continue_training").rows
    assert [row["erased_gap_left"] for row in rows[4:]] == [1] * 3
    assert [row["erased_memory_left"] for row in rows[4:]] == [1] * 3
    assert rows[4]["erased_memory_left_step"] == 1
    assert rows[4]["erased_excess_step"] > 0
    assert all(row["erased_gap"] is None for row in rows[:4])


@pytest.mark.parametrize("method", ERASERS)
def test_without_measures_the_run_is_the_same(method: str) -> None:
    bare, rich = (measured(method, evaluation={"erased": on}) for on in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(bare.models, rich.models, strict=True))
    assert {row["erased_gap"] for row in bare.rows} == {None}
    assert bare.rows[-1]["erase_stored"] == rich.rows[-1]["erase_stored"]
    assert set(bare.state.features["erasure"]["twins"]) == ({"without.0"} if method == "retrain" else set())


@pytest.mark.slow
def test_how_quickly_clients_are_learned_again_tells_where_they_are_only_hidden() -> None:
    rows = {name: measured(name, evaluation={"relearn_epochs": 9}).rows for name in ("retrain", "continue_training")}
    exact, hidden = (own[-1] for own in rows.values())
    assert exact["erased_relearned"] == exact["erased_relearned_counterfactual"] > hidden["erased_relearned"]
    assert all(row["erased_relearned"] is None for own in rows.values() for row in own[:-1])
    few = measured("weight_negation", evaluation={"relearn_epochs": 1})
    assert few.rows[-1]["erased_relearned"] is None
    assert torch.equal(few.state.w, measured("weight_negation").state.w)


@pytest.mark.slow
def test_a_backdoor_is_tried_on_all_three_models() -> None:
    attack = {"name": "backdoor", "clients": [1], "patch": 2, "target": 1}
    local = {"epochs": 4, "batch_size": 2, "lr": 0.5}
    for method in ("retrain", "continue_training"):
        rows = run(
            [request(method)], world(7), data=images(), attack=attack, local=local, model="softmax_regression"
        ).rows
        same = "_counterfactual" if method == "retrain" else "_unerased"
        for row in rows[4:]:
            assert row["erased_attack_success"] == row["attack_success"] == row[f"erased_attack_success{same}"]
        assert rows[4]["erased_attack_success_unerased"] > rows[4]["erased_attack_success_counterfactual"]


def numbers(values: list[float | None]) -> list[float]:
    """Missing values as NaN."""
    return [math.nan if value is None else value for value in values]


@pytest.mark.parametrize("case", UNIT["auc"])
def test_auc_and_its_interval(case: dict[str, Any]) -> None:
    found = erased.auc(*(torch.tensor(case[name], dtype=torch.float64) for name in ("members", "others")))
    assert list(found) == pytest.approx(numbers(case["value"]), abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("case", UNIT["worst_decile"])
def test_worst_tenth(case: dict[str, Any]) -> None:
    values = np.array([value for value in case["values"] if value is not None])
    assert erased.worst_decile(values) == pytest.approx(numbers([case["value"]])[0], abs=1e-9, nan_ok=True)
