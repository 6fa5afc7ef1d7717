"""FedCM: identities with FedAvg and MimeLite, closed forms, and the two step counts."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.federation.state import initial_state
from support import closest, federation, largest_gap, run_rounds, settings, steady, trajectory, vectors, watch

SIZES = (5, 2, 7)
THREADS = {"executor": "threads", "workers": 1}
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2}
FULL = {"epochs": 1, "batch_size": 99, "lr": 0.3}
COHORTS = [[0, 2], [1, 2], [0], [0, 1, 2]]
FLAT = 1e-12
"""Curvature of losses whose gradient is as good as constant."""


fedcm = partial(dict, name="fedcm")


def constant(quadratics: Any, sizes: list[int], gradient: list[float]) -> Any:
    """Data and settings under which every client always sees one gradient."""
    return quadratics(sizes, [FLAT] * len(sizes), [[-value / FLAT for value in gradient]] * len(sizes))


def test_the_first_round_is_fedavg_with_a_smaller_rate() -> None:
    ours, _ = trajectory(fedcm(alpha=0.3), steady(SIZES, 1), vectors(), local=LOCAL, engine=THREADS)
    plain, _ = trajectory("fedavg", steady(SIZES, 1), vectors(), local={**LOCAL, "lr": 0.3 * LOCAL["lr"]})
    assert largest_gap(ours, plain) < 1e-15


def test_one_full_batch_step_makes_delta_the_mean_gradient_and_fedcm_mimelite() -> None:
    """Delta+ = alpha mean g(x) + (1 - alpha) Delta."""
    fed = federation(
        settings(algorithm=fedcm(alpha=0.3), local=FULL, engine=THREADS), steady(SIZES, 4), vectors(), cohorts=COHORTS
    )
    seen, state, Delta = watch(fed), initial_state(fed.parts), torch.zeros_like(fed.parts.w0)
    with torch.no_grad():
        for t in range(4):
            x = state.w
            fed.run_round(state)
            r, _ = seen[t]
            Delta = 0.3 * r.mean(r.services.full_gradient(x)) + 0.7 * Delta
            assert closest(state.server["Delta"], Delta) < 1e-14
    fed.parts.workers.close()
    mime, other = trajectory(
        {"name": "mimelite", "beta": 0.7}, steady(SIZES, 4), vectors(), local=FULL, engine=THREADS, cohorts=COHORTS
    )
    assert largest_gap([w for _, w in seen], mime) < 1e-14
    assert closest(other.server["m"], state.server["Delta"]) < 1e-14


def test_local_models_on_quadratics_have_a_closed_form(quadratics: Any) -> None:
    """y_B = y* + q^B (x - y*) with q = 1 - lr alpha a and y* = z - (1 - alpha) / (alpha a) Delta."""
    a, z, sizes, alpha, lr, steps = [0.5, 2.0], [[1.0, -2.0], [3.0, 4.0]], [2, 6], 0.4, 0.2, 3
    data, chosen = quadratics(sizes, a, z)
    local = {"steps": steps, "batch_size": 2, "lr": lr}
    models, state = trajectory(
        fedcm(alpha=alpha), steady(sizes, 5, classes=2), data, local=local, engine=THREADS, **chosen
    )
    curvature, minima = torch.tensor(a, dtype=torch.float64).unsqueeze(1), torch.tensor(z, dtype=torch.float64)
    p, x, Delta = torch.tensor([0.25, 0.75], dtype=torch.float64), *torch.zeros(2, 2, dtype=torch.float64)
    for model in models:
        target = minima - (1 - alpha) / (alpha * curvature) * Delta
        y = target + (1 - lr * alpha * curvature) ** steps * (x - target)
        x, Delta = p @ y, p @ (x - y) / (lr * steps)
        assert closest(model, x) < 1e-13
    assert closest(state.server["Delta"], Delta) < 1e-13


@pytest.mark.parametrize(
    ("norm", "n", "kappa"), [("actual", "mean", 1.0), ("nominal", "mean", 2 / 1.25), ("nominal", "client0", 2 / 0.75)]
)
@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_a_wrong_count_makes_the_momentum_a_geometric_series(
    quadratics: Any, norm: str, n: str, kappa: float, alpha: float
) -> None:
    """Constant gradients: Delta = kappa alpha g (1 - q^r) / (1 - q) with q = kappa (1 - alpha)."""
    g, rounds, sizes = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), 6, [3, 6, 6]
    data, chosen = constant(quadratics, sizes, g.tolist())
    local = {"epochs": 3, "batch_size": 4, "lr": 0.1}
    algorithm = fedcm(alpha=alpha, momentum_norm=norm, nominal_n=n)
    cohorts = [[1, 2]] * rounds  # two batches each, but 1.5 in real numbers; 1.25 for the mean and 0.75 for client 0
    _, state = trajectory(
        algorithm, steady(sizes, rounds), data, local=local, engine=THREADS, cohorts=cohorts, **chosen
    )
    q = kappa * (1 - alpha)
    expected = kappa * alpha * g * (1 - q**rounds) / (1 - q)
    assert closest(state.server["Delta"], expected) < 1e-9 * float(expected.abs().max())


def test_without_epochs_there_is_no_nominal_count() -> None:
    local = {**LOCAL, "epochs": None, "steps": 5}
    ours, plain = (
        trajectory(fedcm(momentum_norm=norm), steady(SIZES, 3), vectors(), local=local, engine=THREADS)[0]
        for norm in ("nominal", "actual")
    )
    assert largest_gap(ours, plain) == 0


def test_delta_is_a_gradient_under_local_momentum_too(quadratics: Any) -> None:
    data, chosen = constant(quadratics, [3, 6], [1.0, -2.0])
    local = {**LOCAL, "momentum": 0.9}
    _, state = trajectory(fedcm(alpha=0.3), steady([3, 6], 1, classes=2), data, local=local, engine=THREADS, **chosen)
    assert closest(state.server["Delta"], 0.3 * torch.tensor([1.0, -2.0], dtype=torch.float64)) < 1e-9


def test_both_server_steps_are_one_up_to_the_rate() -> None:
    """With equal step counts B, eta_g Delta+ is the displacement for eta_g = lr B."""
    world, local = steady((6, 6, 6), 4), {"epochs": 2, "batch_size": 4, "lr": 0.1}
    ours, plain = (
        trajectory(fedcm(**step), world, vectors(), local=local, engine=THREADS)[0]
        for step in ({"server_step": "gradient_units", "server_lr": 0.1 * 4 * 0.7}, {"server_lr": 0.7})
    )
    assert largest_gap(ours, plain) < 1e-14


def test_delta_is_measured_with_the_rate_of_its_own_round() -> None:
    local = {**LOCAL, "schedule": "exponential", "decay": 0.5}
    fed = federation(settings(algorithm=fedcm(), local=local, engine=THREADS), steady(SIZES, 3), vectors())
    seen = watch(fed)
    run_rounds(fed)
    for t, (r, _) in enumerate(seen):
        u: Tensor = r.mean((r.w - r.W) / r.steps)
        assert closest(r.server.Delta * 0.2 * 0.5**t, u) < 1e-15


def test_what_is_recorded_of_clients_and_server() -> None:
    """7 samples in batches of 3 are 3 steps, nominally 7/3; with nominal division by the mean size, kappa tells it."""
    local = {"epochs": 2, "batch_size": 3, "lr": 0.1}
    for norm, kappas in (("actual", [1.0, 1.0]), ("nominal", [6 / (2 * 5 / 3), 2 / (2 * 5 / 3)])):
        own = {"name": "fedcm", "alpha": 0.3, "momentum_norm": norm, "weighting": "samples"}
        fed = federation(settings(algorithm=own, local=local), steady((7, 3), 2), vectors())
        seen = watch(fed)
        _, records = run_rounds(fed)
        assert records[0].clients["client"] == [0, 1]
        assert records[0].clients["weight"] == pytest.approx([0.7, 0.3])
        assert records[0].clients["kappa"] == pytest.approx(kappas)
        for record, (r, _) in zip(records, seen, strict=True):
            assert record.row["alpha"] == 0.3
            assert record.row["momentum_norm"] == pytest.approx(float(torch.linalg.vector_norm(r.server.Delta)))
