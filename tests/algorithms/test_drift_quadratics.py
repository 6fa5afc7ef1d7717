"""FedDyn, FedDC, FedSSG on quadratics: local training in closed form, stationary states, exact local minimization."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.federation.state import initial_state
from support import closest, federation, run_rounds, settings, steady, watch

A = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
Z = torch.tensor([[1.0, -2.0, 0.5], [-4.0, 1.0, 3.0], [7.0, 0.0, -1.0]], dtype=torch.float64)
COHORTS = [[0, 1], [1, 2], [0, 2], [0, 1, 2], [1]]
LR, STEPS = 0.2, 4
LOCAL = {"steps": STEPS, "batch_size": 2, "lr": LR}
BARE = [
    {"name": "feddyn", "alpha": 0.3},
    {"name": "feddc", "alpha": 0.3},
    {"name": "fedssg", "alpha": 0.3},
    {"name": "fedssg", "alpha": 0.3, "gate": False, "beta": 0.6},
    {"name": "fedssg", "variant": "algorithm_1", "correction": False},
]


def names(value: Any) -> str:
    """Id of a parametrized test."""
    return "-".join(str(part) for part in value.values()) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("sizes", [[4, 4, 4], [2, 4, 6]])
@pytest.mark.parametrize("algorithm", BARE, ids=names)
def test_local_training_in_closed_form(quadratics: Any, algorithm: dict[str, Any], sizes: list[int]) -> None:
    """The gradient is A (theta - z) + l with curvature A and a constant l: K steps shrink theta - target by (1 - eta A)^K."""
    data, chosen = quadratics(sizes, A[:, 0].tolist(), Z.tolist())
    fed = federation(settings(algorithm=algorithm, local=LOCAL, **chosen), steady(sizes, 5), data, cohorts=COHORTS)
    seen, state = watch(fed), initial_state(fed.parts)
    omega = torch.tensor(sizes, dtype=torch.float64).unsqueeze(1) / 4
    alpha = algorithm.get("alpha", 0.05) / omega
    proximal = algorithm["name"] != "fedssg"
    for t, cohort in enumerate(COHORTS):
        w, h = state.w, state.memory["h"].clone()
        c, c_k = (
            (state.server["c"].clone(), state.memory["c_k"].clone())
            if algorithm["name"] != "feddyn" and algorithm.get("correction", True)
            else (torch.zeros(3).double(), torch.zeros_like(h))
        )
        with torch.no_grad():
            fed.run_round(state)
        linear = c / omega - c_k + alpha * (h - w if proximal else h)
        curvature = A + alpha if proximal else A
        target = (A * Z - linear) / curvature
        theta = target + (1 - LR * curvature) ** STEPS * (w - target)
        assert closest(seen[t][0].W, theta[cohort]) < 1e-12
    fed.parts.workers.close()


def stationary(algorithm: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """w*, and memories that cancel the clients' gradients there: alpha h - c_k + grad f = 0, mean h = 0, c = 0."""
    w = (A * Z).sum(0) / A.sum()
    gradient = A * (w - Z)
    if algorithm["name"] in ("feddyn", "fedvra"):
        return w, {"h": -gradient / algorithm.get("alpha", algorithm.get("gamma"))}
    h = torch.tensor([[1.0, 2.0, -3.0], [0.5, -1.0, 1.0], [-1.5, -1.0, 2.0]], dtype=torch.float64)  # any with mean 0
    weight = algorithm["alpha"] if algorithm.get("penalty", True) else 0.0
    return w, {"h": h, "c_k": weight * h + gradient}


@pytest.mark.parametrize("cohorts", [None, COHORTS])
@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "feddyn", "alpha": 0.3},
        {"name": "fedvra", "gamma": 0.3, "a": 2.0},
        {"name": "feddc", "alpha": 0.3},
        {"name": "fedssg", "alpha": 0.3},
        {"name": "fedssg", "alpha": 0.3, "beta": 0.0},
        {"name": "fedssg", "alpha": 0.3, "penalty": False},
        {"name": "fedssg", "alpha": 0.3, "gate": False},
    ],
    ids=names,
)
def test_a_stationary_state_is_left_unchanged(
    quadratics: Any, algorithm: dict[str, Any], cohorts: list[list[int]] | None
) -> None:
    """For every gate and every split between h and c, whoever takes part."""
    data, chosen = quadratics([3, 3, 3], A[:, 0].tolist(), Z.tolist())
    chosen = settings(algorithm=algorithm, local=LOCAL, **chosen)
    fed = federation(chosen, steady([3, 3, 3], 5), data, cohorts=cohorts)
    w, memories = stationary(algorithm)
    fed.parts.w0 = w
    state = initial_state(fed.parts)
    for name, rows in memories.items():
        state.memory[name].copy_(rows)
    run_rounds(fed, state=state)
    assert closest(state.w, w) < 1e-12
    for name, rows in memories.items():
        assert closest(state.memory[name], rows) < 1e-12
    for name, vector in state.server.items():
        assert float(vector.abs().max()) < 1e-12, name
