"""Clipping: lengths, and the bound that follows a quantile."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support import closest
from uplink.passing import Passing, length, normal


@given(st.integers(0, 99), st.floats(0.01, 10))
def test_a_long_update_gets_the_bound_s_length_and_keeps_its_direction(seed: int, bound: float) -> None:
    D = normal(4, 6, seed=seed) * torch.tensor([[0.0], [0.1], [1.0], [5.0]], dtype=torch.float64)
    clip = Passing("clip", 4, 6, bound=bound)
    sent, found = clip(D)
    long = length(D) > bound
    assert torch.equal(sent[~long], D[~long])
    assert closest(length(sent)[long], torch.full_like(length(sent)[long], bound)) < 1e-14 * bound
    assert closest(sent, D * torch.clamp(bound / length(D).clamp(min=1e-300), max=1.0).unsqueeze(1)) < 1e-14
    assert found["clipped"] == pytest.approx(float(long.double().mean()))
    assert found["clip_bound"] == bound


def test_without_a_bound_nothing_is_clipped() -> None:
    D = 1e6 * normal(3, 5)
    sent, found = Passing("clip", 3, 5, bound=None)(D)
    assert torch.equal(sent, D)
    assert found["clipped"] == 0.0
    assert math.isnan(float(found["clip_bound"]))  # recorded as missing


@pytest.mark.parametrize("start", [0.1, 1000.0])
@pytest.mark.parametrize("quantile", [0.25, 0.7])
def test_the_bound_stays_where_as_many_updates_are_shorter_as_wanted(start: float, quantile: float) -> None:
    """Lengths 1 to 20 in every round: the share of those within C is the quantile iff floor(C) = 20 quantile."""
    clip = Passing("clip", 20, 3, bound=start, quantile=quantile, rate=0.3)
    D = torch.nn.functional.normalize(normal(20, 3)) * torch.arange(1.0, 21.0, dtype=torch.float64).unsqueeze(1)
    for _ in range(150):
        clip(D * (1 - 1e-12))
    assert math.floor(float(clip.extra["bound"])) == round(20 * quantile)
    before = float(clip.extra["bound"])
    clip(D * (1 - 1e-12))
    assert float(clip.extra["bound"]) == pytest.approx(before, rel=1e-15)
