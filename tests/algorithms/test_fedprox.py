"""FedProx: identities with FedAvg, and its closed form on quadratics."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedtide.core import plugins
from support import closest, largest_gap, preview, steady, trajectory, vectors

LOCAL = {"amount": 2, "batch_size": 3, "lr": 0.2, "momentum": 0.5, "weight_decay": 0.01, "clip": 1.0}


@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_no_penalty_is_fedavg_to_the_bit(executor: str) -> None:
    common = {"local": LOCAL, "engine": {"executor": executor, "workers": 1}}
    prox, _ = trajectory({"name": "fedprox", "mu": 0.0}, steady((5, 2, 7), 3), vectors(), **common)
    plain, _ = trajectory("fedavg", steady((5, 2, 7), 3), vectors(), **common)
    assert all(torch.equal(a, b) for a, b in zip(prox, plain, strict=True))


@pytest.mark.parametrize("mu", [0.01, 1.0, 8.0])
def test_one_local_step_is_fedavg(mu: float) -> None:
    local = {"amount": 1, "unit": "steps", "batch_size": 3, "lr": 0.2}
    prox, _ = trajectory({"name": "fedprox", "mu": mu}, steady((5, 2, 7), 3), vectors(), local=local)
    plain, _ = trajectory("fedavg", steady((5, 2, 7), 3), vectors(), local=local)
    assert largest_gap(prox, plain) < 1e-14


def test_quadratics_become_stiffer_and_move_towards_the_global_model(quadratics: Any) -> None:
    """With mu, a becomes a + mu and z becomes (a z + mu w) / (a + mu)."""
    a, z, sizes, mu, lr, steps = [0.5, 2.0], [[1.0, -2.0], [3.0, 4.0]], [2, 6], 0.7, 0.3, 4
    data, chosen = quadratics(sizes, a, z)
    local = {"amount": steps, "unit": "steps", "batch_size": 2, "lr": lr}
    models, _ = trajectory({"name": "fedprox", "mu": mu}, steady(sizes, 5, classes=2), data, local=local, **chosen)
    curvature, minima = torch.tensor(a, dtype=torch.float64).unsqueeze(1), torch.tensor(z, dtype=torch.float64)
    p, w = torch.tensor([0.25, 0.75], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for model in models:
        M = (1 - lr * (curvature + mu)) ** steps
        target = (curvature * minima + mu * w) / (curvature + mu)
        w = p @ (M * w + (1 - M) * target)
        assert closest(model, w) < 1e-13


def test_a_strong_penalty_keeps_clients_at_the_global_model(quadratics: Any) -> None:
    data, chosen = quadratics([2, 2], [1.0, 1.0], [[5.0, 5.0], [-1.0, 3.0]])
    local = {"amount": 50, "unit": "steps", "batch_size": 2, "lr": 1e-4}
    weak, strong = (
        trajectory({"name": "fedprox", "mu": mu}, steady([2, 2], 1, classes=2), data, local=local, **chosen)[0][0]
        for mu in (0.0, 5e3)
    )
    assert float(strong.norm()) < float(weak.norm()) / 20


@pytest.mark.parametrize(("lr", "mu", "warned"), [(0.1, 19.9, False), (0.1, 20.0, True), (0.1, 0.0, False)])
def test_an_unstable_step_is_reported(lr: float, mu: float, warned: bool) -> None:
    cls = plugins.load("algorithms", "fedprox")
    lines = cls(cls.Settings(mu=mu)).advice(preview(lr=lr))  # type: ignore[attr-defined]
    assert bool(lines) is warned
