"""FedNova: identities with FedAvg, the norms of the accumulation vectors, where it converges."""

from functools import partial
from typing import Any

import pytest
import torch

from support import closest, federation, run_rounds, settings, steady, vectors, watch

SIZES = (5, 2, 9)
SLOPES = [[1.0, 2.0, 0.5], [3.0, -4.0, 1.0], [-0.5, 1.0, 2.0]]


fednova = partial(dict, name="fednova")


@pytest.mark.parametrize(
    ("local", "mu"),
    [
        ({}, 0.0),
        ({"momentum": 0.9}, 0.0),
        ({"momentum": 0.9, "nesterov": True}, 0.0),
        ({}, 1.5),
        ({"momentum": 0.7}, 1.5),
        ({"momentum": 0.7, "nesterov": True}, 1.5),
    ],
    ids=["plain", "momentum", "nesterov", "proximal", "both", "all"],
)
def test_the_norm_is_the_displacement_under_a_constant_gradient(quadratics: Any, local: Any, mu: float) -> None:
    """theta - w = -eta |a| g, for every number of steps."""
    data, chosen = quadratics(list(SIZES), [0.0] * 3, SLOPES)
    data.train_inputs.copy_(torch.tensor(SLOPES, dtype=torch.float64).repeat_interleave(torch.tensor(SIZES), 0))
    local = {"epochs": 2, "batch_size": 2, "lr": 0.1, **local}
    fed = federation(settings(algorithm=fednova(mu=mu), local=local, **chosen), steady(SIZES, 1), data)
    seen = watch(fed)
    run_rounds(fed)
    r, w = seen[0]
    a, g = fed.parts.algorithm.norm(r), -torch.tensor(SLOPES, dtype=torch.float64)  # type: ignore[attr-defined]
    assert r.steps[:, 0].tolist() == [6, 2, 10]
    assert closest(r.W - r.w, -0.1 * a * g) < 1e-13
    if not mu and not local.get("nesterov"):
        assert closest(a, r.effective_steps) < 1e-13
    p = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
    tau_eff = p @ (r.steps if mu else a)[:, 0]
    assert closest(w, r.w - 0.1 * tau_eff * (p @ g)) < 1e-13


def test_server_momentum_sums_up_the_steps() -> None:
    """b+ = gmf b + (w - w_nova) / eta and w+ = w - eta b+, with eta of each round."""
    local = {"epochs": 2, "batch_size": 3, "lr": 0.1, "schedule": "exponential", "decay": 0.5}
    fed = federation(settings(algorithm=fednova(gmf=0.6), local=local), steady(SIZES, 3), vectors())
    seen = watch(fed)
    run_rounds(fed)
    p, b = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES), torch.zeros_like(fed.parts.w0)
    for t, (r, w) in enumerate(seen):
        eta, tau = 0.1 * 0.5**t, r.steps
        step = (p @ tau[:, 0]) * (p @ ((r.w - r.W) / tau))
        b = 0.6 * b + step / eta
        assert r.lr == pytest.approx(eta)
        assert closest(w, r.w - eta * b) < 1e-14
