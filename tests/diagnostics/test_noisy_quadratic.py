"""The noisy quadratic model: simulations against closed recursions, and who wins."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fedtide.diagnostics.noisy_quadratic import (
    CLIENTS,
    DIMENSION,
    METHODS,
    PROXIMAL,
    SETTINGS,
    STEPS,
    Problem,
    best_rates,
    problem,
    simulate,
)

COARSE = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.3, 0.38)


def recursion(given, method, rate):
    """Gradients r_t = A w_t + B [T + 1, n] without the noise nu: ``r_{t+1} = (I - P) r_t - P u``.

    ``P = lr A sum_{k<K} (I - lr (A + mu I))^k``; u is the clients' mean of ``delta + xi_t``, for CFL averaged over all
    rounds so far. With mu = 0 ``I - P = (I - lr A)^K``.
    """
    n, steps = len(given.B), given.nu.shape[2]
    mu = PROXIMAL if method == "fedprox" else 0.0
    inner = np.eye(n) - rate * (given.A + mu * np.eye(n))
    P = rate * given.A @ sum(np.linalg.matrix_power(inner, k) for k in range(steps))
    u = (given.delta + given.xi).mean(1)
    if method == "cfl":
        u = u.cumsum(0) / np.arange(1, len(u) + 1)[:, None]
    r = [given.A @ np.full(n, 5.0) + given.B]
    for now in u:
        r.append(r[-1] - P @ (r[-1] + now))
    return np.stack(r)


def stationary(setting, rate):
    """Stationary E |A w + B|^2 of FedAvg without delta and nu; infinite unless ``rate < 2 / L``.

    ``sum_j (1 - m_j) / (1 + m_j) E|xi|^2 / (N n)``, ``m_j = (1 - rate lambda_j)^K``.
    """
    if rate >= 2 / setting.largest:
        return float("inf")
    m = (1 - rate * np.linspace(setting.smallest, setting.largest, DIMENSION)) ** STEPS
    return float(((1 - m) / (1 + m)).sum() * setting.xi / (CLIENTS * DIMENSION))


def test_the_eight_settings_and_their_noises():
    assert [setting.name for setting in SETTINGS] == [
        f"{drift} {smooth}-{convex}" for drift in ("SRD", "BRD") for convex in ("SC", "GC") for smooth in ("SL", "LL")
    ]
    for setting in SETTINGS:
        given = problem(setting, 0)
        values = np.linalg.eigvalsh(given.A)
        assert (values[0], values[-1]) == pytest.approx((setting.smallest, setting.largest), abs=1e-12)
        assert np.square(given.xi).sum(-1).mean() == pytest.approx(setting.xi, rel=0.05)
        assert np.square(given.delta).sum(-1).mean() == pytest.approx(0.01, rel=0.5)
        assert np.square(given.nu).sum(-1).mean() == pytest.approx(1e-5, rel=0.05)
        assert np.linalg.lstsq(given.A, -given.B, rcond=None)[0] @ given.A == pytest.approx(-given.B)  # a minimiser


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_without_step_noise_the_run_is_the_closed_recursion(setting, method):
    given = problem(setting, 1, nu=0.0)
    rates = np.array([0.01, 1.0 / setting.largest])
    losses = simulate(given, method, rates)
    for found, rate in zip(losses, rates, strict=True):
        closed = np.linalg.norm(recursion(given, method, float(rate)), axis=1)
        assert found == pytest.approx(closed, rel=1e-9, abs=1e-9)


def test_cfl_with_the_whole_matrix_averages_the_drift_away():
    """Its u is the mean over all rounds, so the loss ends near |mean delta| when xi dominates FedAvg's."""
    given = problem(SETTINGS[4], 2)
    ours, plain = (simulate(given, method, np.array([0.1]))[0, -1] for method in ("cfl", "fedavg"))
    limit = np.linalg.norm((given.delta + given.xi.mean(0)).mean(0))
    assert ours == pytest.approx(limit, rel=0.5)
    assert plain > 4 * ours


def test_diagonal_taylor_models_are_not_exact_in_rotated_coordinates():
    """CFL stalls with them; with A diagonal they are the full ones."""
    setting = SETTINGS[1]
    given = problem(setting, 0)
    rates = np.array([0.02, 0.04, 0.08])
    full, diagonal = (simulate(given, "cfl", rates, kind)[:, -10:].mean(1).min() for kind in ("full", "diagonal"))
    assert diagonal > 10 * full
    flat = Problem(np.diag(np.diag(given.A)), given.B, given.delta, given.xi, given.nu)
    assert simulate(flat, "cfl", rates, "diagonal") == pytest.approx(simulate(flat, "cfl", rates), rel=1e-12)


def test_fedprox_without_its_term_and_cfl_in_its_first_round_are_fedavg():
    given, rates = problem(SETTINGS[0], 0), np.array([0.1])
    plain, cfl = (simulate(given, method, rates)[0] for method in ("fedavg", "cfl"))
    assert cfl[:2].tolist() == plain[:2].tolist()
    assert cfl[2] != plain[2]


@pytest.mark.parametrize("window", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_cfl_is_the_best_in_all_settings(window):
    for setting in SETTINGS:
        found = best_rates(setting, (0,), COARSE, window)
        assert found["cfl"].loss < min(found["fedavg"].loss, found["fedprox"].loss), setting.name
        if setting.xi > 1:
            assert found["cfl"].rate > found["fedavg"].rate
            assert found["cfl"].loss < 0.6 * found["fedavg"].loss


def test_the_stationary_loss_of_fedavg():
    """Mean over rounds of a long noise-free-gradient run, drawn with many clients' worth of rounds."""
    setting = SETTINGS[4]
    rng = np.random.default_rng(0)
    rounds = 20_000
    given = problem(setting, 0, nu=0.0)
    u = rng.normal(size=(rounds, DIMENSION)) * np.sqrt(setting.xi / DIMENSION / CLIENTS)
    eigenvalues = np.linalg.eigvalsh(given.A)
    m = (1 - 0.1 * eigenvalues) ** 5
    r, total = np.zeros(DIMENSION), 0.0
    for noise in u:
        r = m * r - (1 - m) * noise
        total += r @ r
    assert stationary(setting, 0.1) == pytest.approx(total / rounds, rel=0.03)
    assert stationary(setting, 0.4) == math.inf
    assert stationary(setting, 0.399) < math.inf


def test_the_command(fedtide, folder):
    called = fedtide("quadratic", "--seeds", "1", "--json", "--curves", "figure2.csv")
    assert called.status == 0
    rows = json.loads(called.out[-1])
    assert len(rows) == 24
    assert {row["method"] for row in rows} == set(METHODS)
    lines = (folder / "figure2.csv").read_text().splitlines()
    assert len(lines) == 1 + 24 * 101
    refused = fedtide("quadratic", "--curves", "nowhere/figure2.csv")
    assert (refused.status, refused.err) == (2, ["fedtide: curves = 'nowhere/figure2.csv': no folder nowhere"])
