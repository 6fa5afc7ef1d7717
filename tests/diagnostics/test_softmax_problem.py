"""Closed forms of softmax regression against automatic differentiation, and what the constants promise."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedtide.diagnostics.softmax import SoftmaxProblem

SIZES, FEATURES, CLASSES = (7, 3, 12), 5, 4


def problem(seed=0, classes=CLASSES):
    rng = np.random.default_rng(seed)
    inputs = [torch.from_numpy(rng.normal(size=(size, FEATURES))) for size in SIZES]
    labels = [torch.from_numpy(rng.integers(0, classes, size)) for size in SIZES]
    return SoftmaxProblem(inputs, labels, classes), inputs, labels


def point(seed=1, classes=CLASSES):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(classes, FEATURES + 1)))


def test_losses_and_gradients_are_those_of_autograd():
    made, inputs, labels = problem()
    m = point().requires_grad_()
    losses = [functional.cross_entropy(functional.linear(x, m[:, :-1], m[:, -1]), y)
              for x, y in zip(inputs, labels, strict=True)]  # fmt: skip
    mean = sum(size * loss for size, loss in zip(SIZES, losses, strict=True)) / sum(SIZES)
    assert made.loss(m.detach()) == pytest.approx(float(mean.detach()), abs=1e-12)
    gradients = made.gradients(m.detach())
    for found, loss in zip(gradients, losses, strict=True):
        torch.testing.assert_close(found, torch.autograd.grad(loss, m, retain_graph=True)[0])
    torch.testing.assert_close(made.gradient(gradients), torch.autograd.grad(mean, m)[0])


def test_dissimilarity_is_the_weighted_variance_of_the_gradients():
    made, _, _ = problem()
    gradients = made.gradients(point())
    offsets = (gradients - made.gradient(gradients)).flatten(1)
    assert made.dissimilarity(gradients) == pytest.approx(float(made.weights @ offsets.square().sum(1)), abs=1e-12)
    assert made.dissimilarity(gradients[:1].repeat(len(SIZES), 1, 1)) == pytest.approx(0, abs=1e-12)


def test_beta_bounds_every_secant():
    made, _, _ = problem()
    beta = made.smoothness()
    for seed in range(20):
        a, b = point(seed), point(seed + 100)
        ratio = (made.gradients(a) - made.gradients(b)).flatten(1).norm(dim=1) / (a - b).norm()
        assert float(ratio.max()) <= beta


def test_beta_is_attained_by_two_even_classes():
    made, inputs, labels = problem(classes=2)
    largest = []
    for x, y in zip(inputs, labels, strict=True):

        def loss(flat, x=x, y=y):
            m = flat.view(2, FEATURES + 1)
            return functional.cross_entropy(functional.linear(x, m[:, :-1], m[:, -1]), y)

        hessian = torch.autograd.functional.hessian(loss, torch.zeros(2 * (FEATURES + 1), dtype=torch.float64))
        largest.append(float(torch.linalg.eigvalsh(hessian)[-1]))
    assert made.smoothness() == pytest.approx(max(largest), rel=1e-10)


def test_theta_is_the_largest_ratio_of_pairs_of_one_label():
    made, _, labels = problem()
    m, found = point(), []
    for x, y in zip(made.features, labels, strict=True):
        each = [torch.outer(functional.softmax(m @ row, 0) - functional.one_hot(label, CLASSES), row)
                for row, label in zip(x, y, strict=True)]  # fmt: skip
        found += [
            float((each[i] - each[j]).norm() / (x[i] - x[j]).norm())
            for i in range(len(y)) for j in range(i) if y[i] == y[j]
        ]  # fmt: skip
    assert made.lipschitz(m, 5000, seed=0) == pytest.approx(max(found), rel=1e-9)
    assert made.lipschitz(m, 1, seed=0) <= max(found)


def test_equal_samples_of_different_labels_do_not_make_theta_infinite():
    twins = SoftmaxProblem([torch.ones(4, 2, dtype=torch.float64)], [torch.tensor([0, 1, 0, 1])], 2)
    assert twins.lipschitz(torch.zeros(2, 3, dtype=torch.float64), 50, seed=0) == 0


def test_scatter_is_the_sum_of_squared_distances_to_the_mean():
    made, inputs, _ = problem()
    expected = [float(x.var(0, correction=1).sum() * (len(x) - 1)) for x in inputs]
    assert made.scatter().tolist() == pytest.approx(expected)
