"""Diagonals of Hessians and Fisher information: closed forms, and second derivatives by automatic differentiation."""

import numpy as np
import pytest
import torch
from torch.func import functional_call, hessian

from fedtide.training.engine.passes.curvature import fisher_diagonal, taylor, unit_vectors
from fedtide.training.engine.passes.evaluation import full_gradient, pass_through
from support import closest, federation, images, settings, steady, vectors

SIZES = (7, 4, 0, 9)


@pytest.fixture
def world():
    """Makes a federation, points [C, d], shards and label counts; the points are random."""
    feds = []

    def make(model="softmax_regression", data=None):
        feds.append(fed := federation(settings(model=model), steady(SIZES, 1), data or vectors()))
        draw = torch.Generator().manual_seed(1)
        points = fed.parts.w0 + 0.3 * torch.randn(len(SIZES), len(fed.parts.w0), generator=draw, dtype=torch.float64)
        shards = fed.parts.timeline.shards
        return fed, points, shards, fed.parts.data.label_counts(shards)

    yield make
    for fed in feds:
        fed.parts.workers.close()


def full_hessian(fed, w, shard):
    """Of the mean loss, by nested automatic differentiation."""
    network, layout = fed.parts.task.network.double().eval(), fed.parts.layout
    inputs, labels = fed.parts.task.batch(torch.from_numpy(shard))

    def loss(flat):
        logits = functional_call(network, layout.named(flat, fed.parts.b0), (inputs,))
        return torch.nn.functional.cross_entropy(logits, labels)

    return hessian(loss)(w)


def hessian_diagonal(*arguments):
    return taylor(*arguments)[1]


def identity(size):
    return lambda row: torch.eye(size, dtype=torch.float64)


@pytest.mark.parametrize("batch", [3, 100])
@pytest.mark.parametrize("model", ["softmax_regression", {"name": "mlp", "widths": [3]}])
def test_unit_vectors_give_the_diagonal_of_the_hessian(world, model, batch):
    fed, points, shards, counts = world(model)
    found = hessian_diagonal(fed.parts.workers, points, fed.parts.b0, shards, batch, counts, identity(points.shape[1]))
    for row in (0, 1, 3):
        assert closest(found[row], full_hessian(fed, points[row], shards[row]).diagonal()) < 1e-12
    assert not found[2].any()


def test_the_gradient_comes_with_the_diagonal_to_the_bit(world):
    fed, points, shards, counts = world({"name": "mlp", "widths": [3]})
    first = fed.parts.layout.parameters[-2].start
    where = (fed.parts.workers, points, fed.parts.b0, shards, 2, counts)
    gradients, _ = taylor(*where, lambda row: torch.ones(1, points.shape[1] - first, dtype=points.dtype), first)
    assert torch.equal(gradients, full_gradient(*where)[:, first:])


def test_hutchinson_is_unbiased_with_the_variance_of_the_off_diagonal(world):
    """Over all sign vectors: the mean is the diagonal, the variance of entry i is sum_{j != i} H_ij^2."""
    fed, points, shards, counts = world(data=vectors(features=2, classes=3))
    size = points.shape[1]
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * size)
    each = torch.stack(
        [
            hessian_diagonal(
                fed.parts.workers, points[0], fed.parts.b0, shards[:1], 100, counts, lambda row, v=v: v.unsqueeze(0)
            )[0]
            for v in signs[: len(signs) // 2]  # v and -v give the same
        ]
    )
    H = full_hessian(fed, points[0], shards[0])
    assert closest(each.mean(0), H.diagonal()) < 1e-13
    variance = H.square().sum(1) - H.diagonal().square()
    assert closest(each.var(0, unbiased=False), variance) < 1e-13


def test_the_last_parameters_alone(world) -> None:
    fed, points, shards, counts = world({"name": "mlp", "widths": [3]})
    first = fed.parts.layout.parameters[-2].start
    size = points.shape[1]
    whole = hessian_diagonal(fed.parts.workers, points, fed.parts.b0, shards, 5, counts, identity(size))
    head = hessian_diagonal(fed.parts.workers, points, fed.parts.b0, shards, 5, counts, identity(size - first), first)
    assert closest(head, whole[:, first:]) < 1e-14
    squares = fisher_diagonal(fed.parts.workers, points, fed.parts.b0, shards, 1, counts)
    assert (
        closest(fisher_diagonal(fed.parts.workers, points, fed.parts.b0, shards, 1, counts, first), squares[:, first:])
        < 1e-14
    )


@pytest.mark.parametrize("model", ["softmax_regression", "lenet"])
@pytest.mark.parametrize("group", [1, 2, 50])
def test_fisher_is_the_mean_square_of_the_gradients_of_groups(world, model, group):
    fed, points, shards, counts = world(model, images(side=16) if model == "lenet" else None)
    found = fisher_diagonal(fed.parts.workers, points, fed.parts.b0, shards, group, counts)
    for row in (0, 1, 3):
        parts = [shards[row][start : start + group] for start in range(0, len(shards[row]), group)]
        slopes = full_gradient(
            fed.parts.workers, points[row], fed.parts.b0, parts, 100, fed.parts.data.label_counts(parts)
        )
        assert closest(found[row], slopes.square().mean(0)) < 1e-12
    assert not found[2].any()


def test_features_are_what_the_head_sees(world):
    fed, points, shards, _ = world({"name": "mlp", "widths": [3]})
    one, two = pass_through(fed.parts.workers, points[0], fed.parts.b0, [shards[0], np.array([5])], 2)
    named = fed.parts.layout.named(points[0])
    for (found, logits, labels), places in ((one, shards[0]), (two, [5])):
        x = fed.parts.data.train_inputs[torch.as_tensor(places)]
        assert closest(found, torch.relu(x @ named["hidden.0.weight"].T + named["hidden.0.bias"])) < 1e-14
        assert closest(logits, found @ named["head.weight"].T + named["head.bias"]) < 1e-14
        assert torch.equal(labels, fed.parts.data.train_labels[torch.as_tensor(places)])


def test_the_exact_diagonal_takes_one_unit_vector_at_a_time():
    """Not all of them: a matrix of d^2 numbers for every worker."""
    found = [vector.clone() for vector in unit_vectors(5, torch.zeros(1, dtype=torch.float64))]
    assert torch.equal(torch.stack(found), torch.eye(5, dtype=torch.float64))
    kept = list(unit_vectors(5, torch.zeros(1)))
    assert len({vector.data_ptr() for vector in kept}) == 1
