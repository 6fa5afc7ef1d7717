"""Gradient accumulation: k batches per local step are one batch of k times the size."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from matrix import matrix
from support import assert_close, closest, deal, federation, run_rounds, settings, steady, timeline, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

SIZES = (12, 7, 24, 1)
LOCAL = {"epochs": 2, "lr": 0.1, "momentum": 0.5, "clip": 0.5, "weight_decay": 0.01}


def final(sizes: tuple[int, ...] = SIZES, *, data: Any = None, **values: Any) -> Any:
    """State after three rounds."""
    return run_rounds(federation(settings(**values), steady(sizes, 3), data or vectors()))[0]


def in_parts(local: dict[str, Any], batch: int, counts: tuple[int, ...], **values: Any) -> list[Any]:
    """With so many batches per step, each of a part of the size."""
    sizes = ({"batch_size": batch // count, "accumulate": count} for count in counts)
    return [final(local={**local, **size}, **values) for size in sizes]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "algorithm"),
    matrix(["stacked", "threads"], ["moon", "scaffold", "fedavg", "columns", "sharp"]),
)
def test_several_batches_are_one_of_their_size(executor: str, algorithm: str) -> None:
    """Also in short steps, whose last batch is shorter still, and where others in the chunk have more samples."""
    local = {**LOCAL, "momentum": 0.0} if algorithm == "scaffold" else LOCAL
    engine = {"executor": executor, "workers": 1}
    whole, *others = in_parts(local, 6, (1, 2, 3), algorithm=algorithm, engine=engine)
    for parts in others:
        assert_close(whole, parts, 1e-12)


@pytest.mark.parametrize(
    ("model", "algorithm"),
    [pytest.param("softmax_regression", "contrast", marks=pytest.mark.slow), ("noisy", "fedavg")],
)
def test_executors_agree_where_every_batch_has_draws_of_its_own(model: str, algorithm: str) -> None:
    values = {"model": model, "algorithm": algorithm, "local": {**LOCAL, "batch_size": 3, "accumulate": 2}}
    ways = ({"executor": "threads"}, {"executor": "stacked"}, {"executor": "stacked", "chunk": 1})
    first, *others = (final((7, 3), **values, engine={"workers": 1, **way}) for way in ways)
    for other in others:
        assert_close(first, other, 1e-10)


@pytest.mark.parametrize(
    "local",
    [
        {"epochs": 5, "lr": 0.1},
        {"steps": 7, "lr": 0.02, "optimizer": "adam"},
        {"mean_epochs": 2, "lr": 0.1},
        {"epochs": 2, "lr": 0.1, "batches_span_epochs": True},
        {"capped_steps": 3, "lr": 0.1, "order": "class_balanced"},
    ],
    ids=str,
)
def test_steps_draws_and_costs_are_those_of_the_large_batch(local: dict[str, Any]) -> None:
    """Direct steps and Adam's; the number of steps in every unit of work."""
    whole, parts = in_parts(local, 6, (1, 3))
    assert_close(whole, parts, 1e-12)
    same = ("bytes_up", "latency", "energy", "kappa")
    assert [whole.totals[name] for name in same] == [parts.totals[name] for name in same]


def test_batchnorm_sees_each_batch_alone() -> None:
    """A step is the mean of the gradients of its batches, and statistics move once for each."""
    data, local = vectors(12), {"epochs": 1, "lr": 0.1, "order": "stored"}
    fed = federation(settings(model="normed", local={**local, "batch_size": 6, "accumulate": 2}), steady([12], 1), data)
    network = fed.parts.task.network.double().train()
    for part in (slice(0, 6), slice(6, 12)):
        outputs = network(data.train_inputs[part])
        (torch.nn.functional.cross_entropy(outputs, data.train_labels[part]) / 2).backward()
    wanted = torch.cat([(p.detach() - 0.1 * p.grad).flatten() for p in network.parameters() if p.grad is not None])
    statistics = [value.flatten() for value in network.buffers() if value.is_floating_point()]
    state, _ = run_rounds(fed)
    assert closest(state.w, wanted) < 1e-12
    assert closest(state.b, torch.cat(statistics)) < 1e-12


@pytest.mark.slow
def test_dropout_differs_between_the_batches_of_a_step() -> None:
    """Two batches of the same samples would otherwise have the gradient of one."""
    data = vectors(4)
    twice = torch.arange(4).repeat(2)
    data = replace(data, train_inputs=data.train_inputs[twice], train_labels=data.train_labels[twice])
    local = {"epochs": 1, "lr": 0.1, "order": "stored", "batch_size": 4}
    one = final((4,), data=data, model="noisy", local=local)
    two = final((8,), data=data, model="noisy", local={**local, "accumulate": 2})
    assert closest(one.w, two.w) > 1e-4


def test_a_gradient_round_s_own_batch_size_is_one_batch() -> None:
    """`initializer.gradient_batch_size` beyond `local.batch_size` is no accumulation: BatchNorm sees all samples."""
    world = timeline(deal((12,)), [{0: 0}] * 3, session_of_round=[0, 1, 2])
    starts = {"name": "dynamic", "gradient_batch_size": 12, "gradient_steps": 1}
    found = []
    for batch in (12, 4):
        local = {"steps": 1, "lr": 0.1, "batch_size": batch}
        fed = federation(settings(model="normed", initializer=starts, local=local), world, vectors(12))
        state, _ = run_rounds(fed, 1)
        found.append(next(value for name, value in state.initializer.items() if name.endswith("G")))
    assert torch.equal(*found)
