"""Federated training of regressions and of tasks with several labels per sample."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.training.engine.passes.metrics import mean_losses
from fedtide.world.dataset import Dataset
from matrix import matrix
from support import (
    assert_close,
    assert_same,
    closest,
    deal,
    federation,
    run_rounds,
    settings,
    steady,
    timeline,
    vectors,
)

SIZES = (12, 7, 24, 1)
RULE = torch.tensor([[1.0, -2.0], [0.5, 0.0], [3.0, 1.0], [0.0, 0.5], [-1.0, 2.0]], dtype=torch.float64)
OBJECTIVES = {"regression": "mean_squared_error", "multilabel": "binary_cross_entropy"}


def data(task: Any = "regression", width: int = 2, count: int = 60) -> Dataset:
    """Numbers that follow a linear rule with noise; the labels of a multilabel task are which of them are positive."""
    base = vectors(count)
    noise = torch.from_numpy(np.random.default_rng(1).normal(size=(count, width)))
    labels = base.train_inputs @ RULE[:, :width] + noise + 1
    labels = labels if task == "regression" else (labels > 0).double()
    labels = labels[:, 0] if width == 1 and task == "regression" else labels
    return replace(base, train_labels=labels, test_labels=labels, num_classes=1, task=task)


def chosen(**values: Any) -> Any:
    return settings(**{"partition": "iid", "objective": "mean_squared_error", **values})


def trained(given: Dataset, rounds: int = 3, sizes: tuple[int, ...] = SIZES, **values: Any) -> Any:
    """State and records after some rounds."""
    values = {"objective": OBJECTIVES[given.task], **values}
    return run_rounds(federation(chosen(**values), steady(sizes, rounds, classes=1), given))


def affine(inputs: Tensor) -> Tensor:
    return torch.cat([inputs, torch.ones(len(inputs), 1, dtype=inputs.dtype)], 1)


def linear(state: Any, width: int, features: int = 5) -> Tensor:
    """Weights and biases [features + 1, T] of a linear model."""
    weight, bias = state.w.split([width * features, width])
    return torch.cat([weight.view(width, features).T, bias.unsqueeze(0)])


@pytest.mark.parametrize("width", [1, 2])
def test_one_step_on_all_data_of_every_client_is_gradient_descent_on_the_pooled_data(width: int) -> None:
    given, rate = data(width=width), 0.05
    local = {"epochs": 1, "batch_size": 100, "lr": rate}
    fed = federation(chosen(local=local), steady(SIZES, 4, classes=1), given)
    used = affine(given.train_inputs[: sum(SIZES)])
    labels = given.train_labels[: sum(SIZES)].reshape(len(used), -1)
    first, _ = run_rounds(fed, 0)
    theta = linear(first, width)
    for _ in range(4):
        theta = theta - rate * 2 * used.T @ (used @ theta - labels) / len(used) / width
    state, _ = run_rounds(federation(chosen(local=local), steady(SIZES, 4, classes=1), given))
    assert closest(linear(state, width), theta) < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "task"),
    matrix(["moon", "fedavg", "fedprox", "scaffold", "fednova", "fedssg", "feddyn"], OBJECTIVES),
)
def test_executors_agree(task: Any, algorithm: str) -> None:
    """With short batches, which are filled up where clients are stacked, and batches of parts of a step."""
    given, local = data(task), {"epochs": 2, "batch_size": 3, "accumulate": 2, "lr": 0.02}
    states = [
        trained(given, local=local, algorithm=algorithm, engine={"executor": executor, "workers": 1})[0]
        for executor in ("threads", "stacked")
    ]
    assert_close(*states, 1e-12)


@pytest.mark.parametrize("task", OBJECTIVES)
def test_a_client_chooses_its_cluster_by_the_loss_of_the_task(task: Any) -> None:
    """IFCA: by the mean over its samples, of two models the one that is better for it."""
    run = chosen(objective=OBJECTIVES[task], algorithm={"name": "ifca", "clusters": 2})
    fed, other = (federation(run, steady(SIZES, 1, classes=1), data(task)) for _ in range(2))
    state, _ = run_rounds(other)
    models = torch.stack([state.w, torch.zeros_like(state.w)])
    shards, evaluator = fed.parts.timeline.shards, fed.parts.evaluator
    found = mean_losses(evaluator.workers, models, state.b, [*shards, shards[0][:0]], 5)
    for shard, row in zip(shards, found, strict=False):
        for model, loss in zip(models, row, strict=True):
            scores = evaluator.scores_on((model, state.b), *evaluator.training_samples([shard]))
            assert float(loss) == pytest.approx(scores.mean_loss(), rel=1e-12)
    assert found[-1].isinf().all()


def test_one_column_of_targets_is_a_matrix_of_one_column() -> None:
    plain = data(width=1)
    column = replace(plain, train_labels=plain.train_labels[:, None], test_labels=plain.test_labels[:, None])
    assert_same(trained(plain)[0], trained(column)[0])


def test_what_a_session_and_the_clients_are_recorded_with() -> None:
    """Losses at a boundary and of every participant are those of the task."""
    given = data()
    world = timeline(deal(SIZES), [{0: 0, 1: 1}, {2: 2, 3: 3}], session_of_round=[0, 1], classes=1)
    run = chosen(evaluation={"consistency": True}, local={"epochs": 1, "batch_size": 4, "lr": 0.01})
    _, (_, second) = run_rounds(federation(run, world, given))
    assert second.session is not None
    assert second.session["test_r2"] < 1
    start = second.session["losses"]["start"]
    local, sizes = np.array(second.clients["local_loss"]), np.array(SIZES[2:])
    assert start == pytest.approx(float((local * sizes).sum() / sizes.sum()), rel=1e-12)
    assert second.clients["global_loss"] == [pytest.approx(start, rel=1e-12)] * 2


REFUSED = {
    "partition = dirichlet_equal": {"partition": "dirichlet_equal"},
    "partition = iid": {"partition": {"name": "iid", "stratified": True}},
    "scenario = sessions": {"scenario": "sessions"},
    "scenario = evolving": {"scenario": {"name": "evolving", "drift": "fresh", "beta": 1.0}},
    "participation = heterogeneous": {"participation": {"name": "heterogeneous", "shares": "labels"}},
    "algorithm.weighting = feddisco": {"algorithm": {"name": "fedavg", "weighting": "feddisco"}},
    "initializer = continuous": {"initializer": "continuous"},
    "communication = intervals": {"communication": "intervals"},
    "long_tail.imbalance = 0.1": {"long_tail": {"imbalance": 0.1}},
    "local.order = class_balanced": {"local": {"order": "class_balanced"}},
    "evaluation.metrics = auroc, macro_f1": {"evaluation": {"metrics": ["auroc", "macro_f1"]}},
    "evaluation.finetune_steps = 1": {"evaluation": {"clients_every": 2, "finetune_steps": 1}},
    "evaluation.client_samples = 9": {"evaluation": {"clients_every": 2, "client_samples": 9}},
    "evaluation.departed_clients = last_model": {"evaluation": {"clients_every": 2, "departed_clients": "last_model"}},
    **{
        f"algorithm = {name}": {"algorithm": name}
        for name in ("balancefl", "ca_fed", "cfl_core_set", "cfl_generative", "creff", "fedgen", "fedgrab", "fedwcm")
    },
}


@pytest.mark.parametrize(("what", "values"), REFUSED.items(), ids=REFUSED)
def test_what_needs_classes_is_refused(what: str, values: Any) -> None:
    with pytest.raises(SettingsError, match=f"{what} requires classes, and a .+ \\(objective = huber\\) has none"):
        Params({"partition": "iid", "objective": "huber", **values})
    Params({"partition": "iid", **values})


@pytest.mark.parametrize("group", ["report", "tune"])
def test_a_score_of_another_task_is_refused(group: str) -> None:
    prefix = "validation_" if group == "tune" else ""
    for objective, own, other in (
        ("mean_squared_error", "r2", "accuracy"),
        ("binary_cross_entropy", "mean_ap", "r2"),
        ("cross_entropy", "accuracy", "mae"),
    ):
        base = {"partition": "iid", "objective": objective}
        assert getattr(Params(base).experiment, group).metric == prefix + own
        with pytest.raises(
            SettingsError, match=f"{group}.metric = {prefix}{other}: with objective {objective} runs record"
        ):
            Params({**base, group: {"metric": prefix + other}})


def test_data_of_another_task_is_refused() -> None:
    for given, objective, wanted in (
        (data(), "cross_entropy", r"cross_entropy requires classification, but data tiny has numbers to predict"),
        (
            vectors(),
            "huber",
            r"huber requires regression, but data tiny has a class per sample \(classification\); use",
        ),
        (data("multilabel"), "huber", r"but data tiny has several labels .+; use objective binary_cross_entropy"),
    ):
        with pytest.raises(SettingsError, match=wanted):
            federation(chosen(objective=objective), steady(SIZES, 1, classes=1), given)
