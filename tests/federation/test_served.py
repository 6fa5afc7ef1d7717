"""The models that clients are served."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from federation.test_ranks import SIZES
from fedtide.core.discovery.faults import PluginError
from fedtide.federation.federation import Federation
from fedtide.methods.algorithms.base import Served, ServedTo
from support import assert_same, federation, run_rounds, settings, steady, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

EVALUATED = {"clients_every": 1}
MODEL = {"name": "mlp", "widths": [6]}


def made(algorithm: Any = "in_parts", cohorts: Any = None, **values: Any) -> Federation:
    local = {"epochs": 2, "batch_size": 3, "lr": 0.2}
    chosen = settings(**{"algorithm": algorithm, "model": MODEL, "local": local, **values})
    return federation(chosen, steady(SIZES, 3), vectors(), cohorts=cohorts)


def test_asking_for_them_does_not_change_training() -> None:
    with_them, without = (run_rounds(made(evaluation=evaluation))[0] for evaluation in (EVALUATED, {}))
    assert_same(with_them, without)


def test_every_client_present_is_asked_for_a_cohort_at_a_time() -> None:
    fed = made(cohorts=[[0, 3]] * 3, evaluation=EVALUATED)
    served, asked = fed.parts.algorithm.served, []

    def noted(s: ServedTo) -> Served | None:
        asked.append((list(s.ids), s.seen[:, 0].tolist(), s.client.own.abs().sum(1) > 0))
        return served(s)

    fed.parts.algorithm.served = noted  # type: ignore[method-assign]
    run_rounds(fed)
    assert [ids for ids, _, _ in asked] == [[0, 1], [2, 3], [4]] * 3
    assert [seen for _, seen, _ in asked[:3]] == [[1.0, 0.0], [0.0, 1.0], [0.0]]
    assert [own.tolist() for _, _, own in asked[:3]] == [[True, False], [False, True], [False]]


def test_a_newcomer_is_served_the_global_model_and_the_others_their_own() -> None:
    fed = made(cohorts=[[0, 3]] * 3, evaluation=EVALUATED)
    state, records = run_rounds(fed)
    table = records[-1].client_scores
    same = [a == b for a, b in zip(table["served_loss"], table["loss"], strict=True)]
    assert same == [False, True, True, False, True]
    head = fed.parts.layout.mask("head")
    own = torch.where(head, state.memory["own"][0], state.w)
    counts = fed.parts.data.label_counts([fed.parts.timeline.shards[0]])[0]
    scores = made().parts.evaluator.scores((own, state.b))
    expected = float((counts / counts.sum() * scores.correct / scores.count).sum())
    assert table["served_accuracy"][0] == pytest.approx(expected, abs=1e-12)
    row = records[-1].row
    assert row["served_accuracy_mean"] == pytest.approx(np.mean(table["served_accuracy"]), abs=1e-12)


@pytest.mark.parametrize("model", [MODEL, "normed"], ids=["plain", "normed"])
def test_none_is_the_global_model_for_everybody(model: Any) -> None:
    _, records = run_rounds(made({"name": "in_parts", "serve": False}, evaluation=EVALUATED, model=model))
    table = records[-1].client_scores
    assert table["served_accuracy"] == pytest.approx(table["accuracy"], abs=1e-12)
    assert table["served_loss"] == pytest.approx(table["loss"], abs=1e-12)


def test_clusters_share_models() -> None:
    fed, clusters = made(cohorts=[[0, 3]] * 3, evaluation=EVALUATED), np.array([1, 1, 0, 0, 1])

    def two(s: ServedTo) -> Served:
        return Served(torch.stack([s.w, torch.zeros_like(s.w)]), clusters[s.ids])

    fed.parts.algorithm.served = two  # type: ignore[method-assign]
    _, records = run_rounds(fed)
    table = records[-1].client_scores
    uniform = float(np.log(3))
    for cluster, served, whole in zip(clusters, table["served_loss"], table["loss"], strict=True):
        assert served == pytest.approx(uniform if cluster else whole, abs=1e-12)


def test_algorithms_without_such_models_have_no_columns_for_them() -> None:
    _, records = run_rounds(made("fedavg", evaluation=EVALUATED))
    assert not [name for name in records[0].row if name.startswith("served")]
    assert "served_accuracy" not in records[0].client_scores


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda s: s.w, "Served or None, got Tensor"),
        (lambda s: Served(s.w, np.zeros(len(s.ids), dtype=np.int64)), "a tensor of shape"),
        (lambda s: Served(s.w.unsqueeze(0), np.ones(len(s.ids), dtype=np.int64)), "indices from 0 to 0, got 1 to 1"),
        (lambda s: Served(s.w.unsqueeze(0), np.zeros(1, dtype=np.int64)), "a model for each of 5 clients, got 1"),
    ],
)
def test_other_answers_are_refused(answer: Any, message: str) -> None:
    fed = made(evaluation=EVALUATED)
    fed.parts.algorithm.served = answer  # type: ignore[method-assign]
    with pytest.raises(PluginError) as caught:
        run_rounds(fed)
    fed.parts.workers.close()
    assert message in str(caught.value)
