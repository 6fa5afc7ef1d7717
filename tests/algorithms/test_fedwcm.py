"""FedWCM and FedWCM-X: bounds, and reductions to FedCM, FedAvg and each other."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch import Tensor

from fedtide.methods.algorithms.fedwcm import Imbalance, relative_score
from fedtide.world.dataset import Dataset
from support import closest, dataset, federation, run_rounds, settings, steady, vectors, watch

THREADS = {"executor": "threads", "workers": 1}
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2}
COUNTS = st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=2, max_size=6).filter(
    lambda rows: any(map(sum, rows))
)


def fedwcm(name: str = "fedwcm", **values: Any) -> dict[str, Any]:
    """Settings of FedWCM or FedWCM-X."""
    return {"name": name, **values}


def labeled(labels: list[int], classes: int = 3) -> Dataset:
    """Gaussian features with given labels."""
    inputs = torch.randn(len(labels), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return dataset(inputs, torch.tensor(labels), classes)


def uniform(counts: Tensor) -> Tensor:
    """The uniform target."""
    return torch.full_like(counts[0], 1 / counts.shape[1])


def played(algorithm: Any, sizes: Any, data: Dataset, rounds: int = 3, cohorts: Any = None) -> Any:
    """Records and models of a run."""
    fed = federation(
        settings(algorithm=algorithm, local=LOCAL, engine=THREADS), steady(sizes, rounds), data, cohorts=cohorts
    )
    seen = watch(fed)
    run_rounds(fed)
    return seen


@examples(deadline=None)
@given(rows=COUNTS, order=st.permutations(range(3)), score=st.sampled_from(["abs", "scarce"]), cut=st.integers(1, 5))
def test_scores_do_not_see_names_of_classes_and_q_is_bounded(
    rows: list[list[int]], order: list[int], score: str, cut: int
) -> None:
    counts = torch.tensor([row for row in rows if any(row)], dtype=torch.float64)
    found = Imbalance.of(counts.sum(0), uniform(counts), score)
    renamed = Imbalance.of(counts[:, order].sum(0), uniform(counts), score)
    scores = found.scores(counts)
    assert closest(scores, renamed.scores(counts[:, order])) < 1e-15
    assert abs(found.L1 - renamed.L1) < 1e-15
    assert 0 <= found.L1 < 2
    assert relative_score(scores, scores) == pytest.approx(1.0)
    some, mean = found.scores(counts[:cut]), float(scores.mean())
    if mean > 1e-12:
        q, (low, high) = relative_score(some, scores), (float(scores.min()), float(scores.max()))
        assert low / mean - 1e-9 <= q <= min(high / mean, len(counts) / len(some)) + 1e-9


@pytest.mark.parametrize(
    ("argument", "x"), [("discrepancy", 0.4), ("temperature", 1 / (9 * 0.4)), ("per_client", 3 * 0.4 / 3)]
)
def test_what_alpha_depends_on(argument: str, x: float) -> None:
    """Frequencies 8/15, 4/15, 3/15 are 0.4 away from uniform."""
    data = labeled([0] * 8 + [1] * 4 + [2] * 3)
    r, _ = played(fedwcm(alpha_argument=argument), (5, 5, 5), data, rounds=1)[0]
    assert float(r.extra["alpha"]) == pytest.approx(0.1 + 0.9 * (1 - math.exp(-x)), abs=1e-14)


def test_the_data_s_own_frequencies_as_target_leave_nothing_to_correct() -> None:
    data = labeled([0] * 8 + [1] * 4 + [2] * 4)
    for r, _ in played(fedwcm(target=[0.5, 0.25, 0.25]), (6, 6, 4), data):
        assert float(r.extra["alpha"]) == 0.1
        assert closest(r.weights, torch.full_like(r.weights, 1 / 3)) < 1e-15


def test_a_cap_bounds_the_rates_of_small_clients() -> None:
    fed = federation(
        settings(algorithm=fedwcm("fedwcm_x", lr_cap=0.3), local=LOCAL, engine=THREADS), steady((3, 8, 4), 1), vectors()
    )
    seen = watch(fed)
    run_rounds(fed)
    r, _ = seen[0]
    algorithm: Any = fed.parts.algorithm
    assert (
        closest(0.2 * algorithm.lr_scale(r)[:, 0], torch.tensor([0.3, 0.2 * 4 / 6, 0.2], dtype=torch.float64)) < 1e-15
    )
