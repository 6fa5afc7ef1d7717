"""CA-Fed: estimates from counts, the bound, exclusion."""

from typing import Any

import numpy as np
import pytest
import torch

from fedtide.methods.algorithms.ca_fed import CaFed


def rule(**values: Any) -> CaFed:
    """The algorithm without a run."""
    return CaFed(CaFed.Settings(**values))


def random_clients(seed: int, K: int = 7) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """alpha, pi and excess losses."""
    rng = np.random.default_rng(seed)
    return torch.full((K,), 1 / K, dtype=torch.float64), *torch.from_numpy(rng.uniform(0.1, 1.0, (2, K)))


def test_the_bound_does_not_depend_on_the_scale_of_the_weights() -> None:
    alpha, pi, excess = random_clients(0)
    A = alpha / pi
    A[2] = 0
    ours = rule(bias=0.7)
    P = pi * A / (pi * A).sum()
    assert ours.objective(A, alpha, pi, excess) == pytest.approx(ours.objective(5 * A, alpha, pi, excess), abs=1e-15)
    bias = float((alpha - P).abs().sum() / 2)
    by_hand = sum(float(p * e) for p, e in zip(P, excess, strict=True)) + 0.7 * float(excess.max()) * bias**2
    assert ours.objective(A, alpha, pi, excess) == pytest.approx(by_hand, abs=1e-15)


def test_exclusions_lower_the_bound_and_repeat_as_they_are() -> None:
    excluded = 0
    for seed in range(20):
        alpha, pi, excess = random_clients(seed)
        correlation = torch.linspace(-0.5, 0.8, 7, dtype=torch.float64)
        ours = rule(bias=0.2)
        A = ours.exclude(alpha / pi, alpha, pi, correlation, excess)
        excluded += int((A == 0).sum())
        assert torch.equal(A[A > 0], (alpha / pi)[A > 0])
        assert ours.objective(A, alpha, pi, excess) <= ours.objective(alpha / pi, alpha, pi, excess)
        never = rule(bias=0.2, tolerance=100.0).exclude(alpha / pi, alpha, pi, correlation, excess)
        assert torch.equal(never, alpha / pi)
    assert excluded > 20


def test_equal_eigenvalues_are_tried_by_id() -> None:
    """Two equal clients of which only one pays to be left out; rounding noise does not decide."""
    alpha, pi = torch.full((4,), 1 / 4, dtype=torch.float64), torch.full((4,), 0.5, dtype=torch.float64)
    excess = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    for noise in (-1e-15, 1e-15):
        correlation = torch.tensor([0.0, 0.0, 0.3, 0.3 + noise], dtype=torch.float64)
        A = rule(bias=2.0).exclude(alpha / pi, alpha, pi, correlation, excess)
        assert (A > 0).tolist() == [True, True, False, True]
