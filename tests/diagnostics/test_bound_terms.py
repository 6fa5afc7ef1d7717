"""The terms of the bound: conditions on the step size, readings, and limits."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedtide.diagnostics.bound import Constants, Work, drift, largest_rate, terms

WORK = Work(np.array([10.0, 30.0]), np.array([5.0, 10.0]), np.array([2.0, 3.0]))
CONSTANTS = Constants(beta=2.0, theta=3.0, zeta2=0.5, scatter=np.array([4.0, 8.0]))


def test_the_step_size_condition_cannot_be_met_from_four_steps_on():
    """The bracket 1/2 - (1/e - 1)^2 for e = 1..5, as listed in the discussion of the theorem."""
    brackets = [largest_rate(1.0, steps) for steps in (1, 2, 3, 4, 5)]
    assert brackets == pytest.approx([0.5, 0.25, 0.0556, -0.0625, -0.14], abs=5e-5)
    assert largest_rate(4.0, 1) == 0.125


def test_drift_solves_its_condition_with_equality():
    beta, lr, e, zeta1 = 2.0, 0.05, 3.0, 1.0
    found = drift(beta, lr, e, zeta1)
    q = 4 * beta**2 * lr**2 * e * (e - 1)
    assert found == pytest.approx(q * (zeta1 + found))
    assert drift(beta, lr, 1.0) == 0
    assert math.isnan(drift(beta, 1.0, 3.0))
    assert math.isnan(drift(1.0, math.sqrt(0.5 / 8), 2.0))  # q = 1/2: Lambda would be 1


def test_every_term_in_the_open():
    found = terms(WORK, CONSTANTS, lr=0.01, loss=2.0, next_loss=1.5)
    scale = 1 / (1 - drift(2.0, 0.01, 3.0))
    assert found.a == pytest.approx(2 * 0.5 / 0.01 * scale)
    assert found.b == pytest.approx(4 * 2 * 9 * 0.01 * scale * (4 * 2 * 5 / (5 * 100) + 8 * 3 * 20 / (10 * 900)))
    assert found.b_tight == pytest.approx(4 * 2 * 9 * 0.01 * scale * (4 * 2 * 5 / (5 * 400) + 8 * 3 * 20 / (10 * 1200)))
    assert found.c == pytest.approx(4 * 4 * 1e-4 / 40 * scale * (1 * 0.5 * 9 * 4 / 5 + 2 * (2 / 3) * 9 * 8 / 10))
    assert found.d == pytest.approx(8 * 4 * 1e-4 * 3 * 2 * 0.5 * scale)
    assert found.total == pytest.approx(found.a + found.b + found.c + found.d)


def test_the_readings():
    usual = terms(WORK, CONSTANTS, 0.01, 2.0, 1.5)
    printed = terms(WORK, CONSTANTS, 0.01, 2.0, 1.5, theta_power=1)
    assert printed.c == pytest.approx(usual.c / 3)
    assert (printed.a, printed.b, printed.d) == (usual.a, usual.b, usual.d)
    variance = terms(WORK, CONSTANTS, 0.01, 2.0, 1.5, spread="variance")
    same = terms(WORK, replace(CONSTANTS, scatter=CONSTANTS.scatter / (WORK.samples - 1)), 0.01, 2.0, 1.5)
    assert variance == same


def test_with_clients_of_one_size_the_printed_sampling_term_is_too_large_by_their_number():
    equal = Work(np.full(5, 20.0), np.full(5, 4.0), np.full(5, 2.0))
    found = terms(equal, replace(CONSTANTS, scatter=np.arange(1.0, 6.0)), 0.01, 1.0, 1.0)
    assert found.b == pytest.approx(5 * found.b_tight)


def test_one_full_batch_leaves_the_descent_alone():
    full = Work(WORK.samples, WORK.samples, np.ones(2))
    found = terms(full, CONSTANTS, 0.01, 2.0, 1.5)
    assert (found.b, found.c, found.d) == (0, 0, 0)
    assert found.total == pytest.approx(100)
