"""FedDisco's weights: limits, invariances, and the algorithms they are combined with."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from fedtide.core import plugins
from fedtide.federation.scoring.scores import latest_mean
from support import closest, deal, federation, run_rounds, settings, timeline, vectors, watch

COUNTS = st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any), min_size=1, max_size=6)


def disco(counts: Any, **values: float) -> Tensor:
    """Weights of clients with these samples per class."""
    cls: Any = plugins.load("weighting", "feddisco")
    table = torch.tensor(counts, dtype=torch.float64)
    found: Tensor = cls(cls.Settings(**values)).weights(table.sum(1), table)
    return found


@given(COUNTS, st.floats(0, 3), st.floats(0, 3))
@hypothesis_settings(max_examples=60, deadline=None)
def test_they_are_weights(counts: list[list[int]], a: float, b: float) -> None:
    q = disco(counts, a=a, b=b)
    assert bool((q >= 0).all())
    assert float(q.sum()) == pytest.approx(1.0, abs=1e-12)


@given(COUNTS)
@hypothesis_settings(max_examples=40, deadline=None)
def test_nothing_corrected_is_by_samples(counts: list[list[int]]) -> None:
    n = torch.tensor(counts, dtype=torch.float64).sum(1)
    assert closest(disco(counts, a=0.0, b=0.0), n / n.sum()) < 1e-15


def test_by_hand() -> None:
    """L = 2: KL of (3, 1) is log 2 - H(1/4); (2, 2) has none, so the first client has all of the discrepancy."""
    q = disco([[3, 1], [2, 2]], a=0.5, b=0.1)
    assert closest(q, torch.tensor([0.1, 0.6], dtype=torch.float64) / 0.7) < 1e-15
    d = [math.log(2), math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)]
    raw = torch.tensor([2 / 6 - 0.5 * d[0] / sum(d) + 0.4, 4 / 6 - 0.5 * d[1] / sum(d) + 0.4], dtype=torch.float64)
    assert closest(disco([[2, 0], [3, 1]], a=0.5, b=0.4), raw / raw.sum()) < 1e-15


@pytest.mark.parametrize("classes", [3, 10, 49, 100])
def test_uniform_labels_have_no_discrepancy_whatever_the_number_of_classes(classes: int) -> None:
    """And the rounding of a histogram of ones is not mistaken for one."""
    n = torch.tensor([1.0, 3.0, 4.0], dtype=torch.float64)
    q = disco(n.unsqueeze(1).expand(-1, classes).tolist(), a=2.0, b=0.0)
    assert closest(q, n / n.sum()) < 1e-15


def test_a_large_constant_makes_it_uniform() -> None:
    assert closest(disco([[9, 0], [1, 1], [0, 3]], b=1e9), torch.full((3,), 1 / 3, dtype=torch.float64)) < 1e-8


def test_where_nothing_is_left_samples_count() -> None:
    q = disco([[4, 0], [0, 2]], a=2.0, b=0.0)
    assert closest(q, torch.tensor([2 / 3, 1 / 3], dtype=torch.float64)) < 1e-15


def world(sizes: tuple[int, ...], rounds: int) -> Any:
    """A steady world."""
    return timeline(deal(sizes), [{client: client for client in range(len(sizes))}] * rounds)


def test_on_fedavg_the_model_is_the_weighted_mean() -> None:
    chosen = settings(algorithm={"name": "fedavg", "weighting": {"name": "feddisco", "a": 0.7}})
    fed = federation(chosen, world((5, 9, 3), 2), vectors(), cohorts=[[0, 1], [0, 1, 2]])
    seen = watch(fed)
    run_rounds(fed)
    for r, w in seen:
        assert closest(w, disco(r.label_counts.tolist(), a=0.7) @ r.W) < 1e-15


def test_on_feddyn_only_the_participants_mean_is_weighted() -> None:
    """w+ = sum q_k theta_k + mean_N h, and everybody's mean stays uniform."""
    chosen = settings(algorithm={"name": "feddyn", "weighting": "feddisco"})
    fed = federation(chosen, world((5, 9, 3), 2), vectors(), cohorts=[[0, 1], [1, 2]])
    seen = watch(fed)
    state, _ = run_rounds(fed)
    r, w = seen[-1]
    assert closest(w, disco(r.label_counts.tolist()) @ r.W + state.memory["h"].mean(0)) < 1e-14
    assert closest(latest_mean(fed.parts, state, 1), state.memory["latest"].mean(0)) < 1e-15
