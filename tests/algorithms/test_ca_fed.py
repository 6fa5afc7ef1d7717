"""CA-Fed: estimates from counts, the bound, exclusion."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from algorithms.absent_worlds import LOCAL, SIZES, available
from fedtide.methods.algorithms.ca_fed import CaFed
from support import closest, federation, run_rounds, settings, steady, vectors, watch

COHORTS = available((0.7, 0.3, 0.5, 0.2), 12)


ca = partial(dict, name="ca_fed")


def watched(chosen: Any) -> tuple[list[Any], list[Any], Any]:
    """Rounds, records and state of a run with these cohorts."""
    fed = federation(settings(algorithm=chosen, local=LOCAL), steady(SIZES, 12), vectors(), cohorts=COHORTS)
    seen = watch(fed)
    state, records = run_rounds(fed)
    return seen, records, state


def test_estimates_are_counts_with_a_prior() -> None:
    """pi and lambda of every participant in every round, from the cohorts alone."""
    a, m = 0.4, 3.0
    _, records, _ = watched(ca(prior_availability=a, prior_rounds=m))
    for t, record in enumerate(records):
        rows = record.clients
        for row, i in enumerate(rows["client"]):
            on = [int(i in cohort) for cohort in COHORTS[: t + 1]]
            moves = list(pairwise(on))
            stay_on = (moves.count((1, 1)) + m * a * a) / (sum(before for before, _ in moves) + m * a)
            off = sum(1 - before for before, _ in moves)
            stay_off = (moves.count((0, 0)) + m * (1 - a) ** 2) / (off + m * (1 - a))
            assert rows["availability"][row] == pytest.approx((sum(on) + m * a) / (t + 1 + m), abs=1e-14)
            assert rows["correlation"][row] == pytest.approx(stay_on + stay_off - 1, abs=1e-14)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_a_large_bias_excludes_nobody(weighting: str) -> None:
    """w+ = w + sum_S (q_i / pi_i) Delta_i, the unbiased rule."""
    seen, records, _ = watched(ca(bias=1e9, weighting=weighting))
    n = torch.tensor(SIZES, dtype=torch.float64)
    q = n / n.sum() if weighting == "samples" else torch.full_like(n, 1 / 4)
    for (r, w), record in zip(seen, records, strict=True):
        weights = q[r.ids] / torch.tensor(record.clients["availability"], dtype=torch.float64)
        assert closest(w, r.w + weights @ (r.W - r.w)) < 1e-14


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


def test_losses_are_smoothed_and_begin_with_the_first_rounds_mean() -> None:
    seen, _, state = watched(ca(smoothing=0.6))
    data, expected = vectors(), None
    starts = np.cumsum((0, *SIZES))
    for r, _ in seen:
        weight, bias = r.w[:15].view(3, 5), r.w[15:]
        losses = torch.nn.functional.cross_entropy(
            data.train_inputs @ weight.T + bias, data.train_labels, reduction="none"
        )
        now = torch.stack([losses[starts[i] : starts[i + 1]].mean() for i in r.ids])
        if expected is None:
            expected = torch.full((4,), float(now.mean()), dtype=torch.float64)
            expected[r.ids] = now
        else:
            expected[r.ids] = 0.6 * expected[r.ids] + 0.4 * now
    assert expected is not None
    assert closest(state.extra["loss"], expected) < 1e-14
