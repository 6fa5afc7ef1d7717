"""FedProx: its closed form on quadratics, and its advice."""

from typing import Any

import torch

from support import closest, steady, trajectory


def test_quadratics_become_stiffer_and_move_toward_the_global_model(quadratics: Any) -> None:
    """With mu, a becomes a + mu and z becomes (a z + mu w) / (a + mu)."""
    a, z, sizes, mu, lr, steps = [0.5, 2.0], [[1.0, -2.0], [3.0, 4.0]], [2, 6], 0.7, 0.3, 4
    data, chosen = quadratics(sizes, a, z)
    local = {"steps": steps, "batch_size": 2, "lr": lr}
    models, _ = trajectory({"name": "fedprox", "mu": mu}, steady(sizes, 5, classes=2), data, local=local, **chosen)
    curvature, minima = torch.tensor(a, dtype=torch.float64).unsqueeze(1), torch.tensor(z, dtype=torch.float64)
    p, w = torch.tensor([0.25, 0.75], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for model in models:
        M = (1 - lr * (curvature + mu)) ** steps
        target = (curvature * minima + mu * w) / (curvature + mu)
        w = p @ (M * w + (1 - M) * target)
        assert closest(model, w) < 1e-13
