"""Convergence rates: their limits, their order, and the identity the proof rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.algorithms.cfl_regularization import present_weight
from fedtide.diagnostics.rates import (
    World,
    floor,
    largest_local_rate,
    one_round,
    rounds_convex,
    rounds_strongly_convex,
    without_memory,
)

positive = st.floats(0.01, 10)
worlds = st.builds(
    World, N=st.integers(1, 20), K=st.integers(1, 20), L=positive, mu=positive, G2=positive, D2=positive, R2=positive,
    A2=positive, B2=positive, sigma2=positive, F=positive,
)  # fmt: skip


@given(worlds, st.floats(0.001, 0.5))
def test_infinite_information_loss_is_fedavg_and_none_is_never_worse(world, epsilon):
    for rounds in (rounds_strongly_convex, rounds_convex):
        plain = rounds(without_memory(world), epsilon)
        assert rounds(replace(world, R2=1e15), epsilon) == pytest.approx(plain, rel=1e-3)
    assert replace(world, R2=0.0).c_A == world.G2  # no time drift is left
    assert replace(world, R2=0.0).c_B == pytest.approx(world.D2)
    assert world.c_A <= without_memory(world).c_A


@given(worlds, positive)
def test_time_drift_moves_from_what_stays_to_what_vanishes(world, more):
    other = replace(world, R2=world.R2 + more)
    assert other.c_A >= world.c_A
    assert other.c_B <= world.c_B


@given(worlds, st.floats(0.01, 0.5))
def test_a_smaller_error_takes_more_rounds(world, epsilon):
    for rounds in (rounds_strongly_convex, rounds_convex):
        assert rounds(world, epsilon / 2) > rounds(world, epsilon)


@given(positive, positive, st.integers(1, 500))
def test_the_identity_of_the_proof(D2, R2, t):
    """sum p^2 D^2 + (sum of the past)^2 R^2 is D^2 (D^2 + (t-1) R^2) / (t D^2 + (t-1) R^2), and that splits exactly."""
    s = R2 + D2
    left = (D2 + (t - 1) * R2) / (t * D2 + (t - 1) * R2)
    assert left == pytest.approx(R2 / s + (D2**2 / s**2) / (t - R2 / s))
    p = present_weight(t, D2, R2)
    each = (1 - p) / (t - 1) if t > 1 else 0.0
    assert D2 * (p**2 + (t - 1) * each**2) + R2 * (1 - p) ** 2 == pytest.approx(D2 * left)


def test_one_round_of_gradient_descent_by_hand():
    """One client, one step, nothing random: (1/eta) (1 - mu eta / 2) before - after / eta."""
    world = World(N=1, K=1, mu=0.5)
    assert one_round(world, [[1.0]], 0.1, before=4.0, after=3.0) == pytest.approx(10 * 0.975 * 4 - 30)
    drifting = replace(world, D2=2.0, R2=8.0, L=3.0)
    half = one_round(drifting, [[0.5, 0.5]], 0.1, 4.0, 3.0) - one_round(world, [[1.0]], 0.1, 4.0, 3.0)
    # c_pG = 2 (1/4 + 1/4) = 1, c_R = 8 / 4 = 2, phi = 2 * 1/2 * sqrt(8)
    assert half == pytest.approx((2 + 4) * 0.1 + (1 + 2) * 0.01 + 8**0.5)


@given(worlds, st.integers(2, 1000))
def test_what_is_lost_costs_accuracy(world, rounds):
    assert floor(replace(world, R2=0.0), rounds) == 0
    assert floor(replace(world, D2=0.0), rounds) == 0
    assert 0 < floor(world, rounds) <= (world.R2 * world.F) ** 0.5


@given(worlds)
def test_clients_without_memory_have_client_drift_in_the_place_of_time_drift(world):
    stateless = replace(world, stateful=False)
    drift = world.D2 + world.G2
    assert stateless.c_A == pytest.approx(drift * world.R2 / (drift + world.R2))
    assert stateless.c_B == pytest.approx(drift**3 / (drift + world.R2) ** 2)
    assert replace(stateless, G2=0.0).c_A == pytest.approx(replace(world, G2=0.0).c_A)


def test_the_step_size_condition():
    plain = largest_local_rate(World(N=1, K=1))
    assert plain == pytest.approx((7**0.5 - 2) / 6)
    assert largest_local_rate(World(N=1, K=5, L=2.0)) == pytest.approx(plain / 10)
    assert largest_local_rate(World(N=1, K=1, A2=3.0)) < plain
