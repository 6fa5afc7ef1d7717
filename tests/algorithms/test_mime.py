"""Mime and MimeLite: identities with each other, and the momentum's recursion."""

from typing import Any

import pytest
import torch

from fedtide.federation.state import initial_state
from support import closest, federation, largest_gap, settings, steady, trajectory, vectors, watch

SIZES = (5, 2, 7)
THREADS = {"executor": "threads", "workers": 1}
FULL = {"epochs": 1, "batch_size": 99, "lr": 0.3}
COHORTS = [[0, 2], [1, 2], [0], [0, 1, 2]]


@pytest.mark.parametrize("dampening", [True, False])
def test_with_one_full_batch_step_both_make_the_same_model(dampening: bool) -> None:
    """The corrections c - c_k cancel in the mean."""
    mime, lite = (
        trajectory(
            {"name": name, "beta": 0.7, "dampening": dampening},
            steady(SIZES, 4),
            vectors(),
            local=FULL,
            engine=THREADS,
            cohorts=COHORTS,
        )[0]
        for name in ("mime", "mimelite")
    )
    assert largest_gap(mime, lite) < 1e-14


@pytest.mark.parametrize(("dampening", "fresh"), [(True, 0.3), (False, 1.0)])
def test_the_first_step_of_mime_is_a_central_one(dampening: bool, fresh: float) -> None:
    """At y = x the batch gradients cancel: every client moves by -lr m+, m+ = U(mean gradient over all data)."""
    local = {"steps": 1, "batch_size": 2, "lr": 0.2}
    algorithm = {"name": "mime", "beta": 0.7, "dampening": dampening}
    fed = federation(
        settings(algorithm=algorithm, local=local, engine=THREADS), steady(SIZES, 4), vectors(), cohorts=COHORTS
    )
    seen, state, m = watch(fed), initial_state(fed.parts), torch.zeros_like(fed.parts.w0)
    with torch.no_grad():
        for t in range(4):
            x = state.w
            fed.run_round(state)
            r, new = seen[t]
            m = fresh * r.mean(r.services.full_gradient(x)) + 0.7 * m
            assert closest(r.W, (x - 0.2 * m).expand_as(r.W)) < 1e-14
            assert closest(new, x - 0.2 * m) < 1e-14
            assert closest(state.server["m"], m) < 1e-14
    fed.parts.workers.close()


def test_mime_without_momentum_corrects_as_svrg_does(quadratics: Any) -> None:
    """Clients with quadratics a_k/2 |y - z_k|^2 step along a_k (y - x) + c, so y_B - x = -c (1 - (1 - lr a_k)^B) / a_k."""
    a, z, sizes, lr, steps = [0.5, 2.0], [[1.0, -2.0], [3.0, 4.0]], [2, 6], 0.2, 3
    data, chosen = quadratics(sizes, a, z)
    local = {"steps": steps, "batch_size": 2, "lr": lr}
    models, _ = trajectory(
        {"name": "mime", "beta": 0.0}, steady(sizes, 3, classes=2), data, local=local, engine=THREADS, **chosen
    )
    curvature, minima = torch.tensor(a, dtype=torch.float64).unsqueeze(1), torch.tensor(z, dtype=torch.float64)
    p, x = torch.tensor([0.25, 0.75], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for model in models:
        c = p @ (curvature * (x - minima))
        x = x - p @ ((1 - (1 - lr * curvature) ** steps) / curvature * c)
        assert closest(model, x) < 1e-13
