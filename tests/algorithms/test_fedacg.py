"""FedACG: its first rounds, the momentum's recursion, and its closed form on quadratics."""

from functools import partial
from typing import Any

import pytest
import torch

from fedtide.federation.state import initial_state
from support import closest, deal, federation, run_rounds, settings, steady, timeline, trajectory, vectors, watch

LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2, "momentum": 0.9}
SIZES = (5, 2, 7)
COHORTS = [[0, 2], [1, 2], [0], [0, 1, 2]]


fedacg = partial(dict, name="fedacg")


@pytest.mark.parametrize(("on_session_start", "fresh"), [("reset", True), ("keep", False)])
def test_the_first_round_of_a_session_is_fedprox_unless_momentum_is_kept(on_session_start: str, fresh: bool) -> None:
    everybody = {client: client for client in range(len(SIZES))}
    world = timeline(deal(SIZES), [everybody] * 3, session_of_round=[0, 0, 1])
    common = {"local": LOCAL, "client_state": {"on_session_start": on_session_start}}
    ours, _ = trajectory(fedacg(beta=0.3), world, vectors(), **common)
    for first_round, same in ((0, True), (2, fresh)):
        fed = federation(settings(algorithm={"name": "fedprox", "mu": 0.3}, **common), world, vectors())
        start = initial_state(fed.parts)
        start.round, start.w = first_round, ours[first_round - 1].clone() if first_round else start.w
        state, _ = run_rounds(fed, 1, start)
        assert torch.equal(ours[first_round], state.w) is same


def test_a_kept_momentum_is_that_of_the_session_before() -> None:
    """With momentum kept and the model going on, a session change is none."""
    everybody = {client: client for client in range(len(SIZES))}
    common = {"local": LOCAL, "client_state": {"on_session_start": "keep"}}
    parted, whole = (
        trajectory(
            fedacg(beta=0.3), timeline(deal(SIZES), [everybody] * 4, session_of_round=sessions), vectors(), **common
        )[0]
        for sessions in ([0, 0, 1, 1], [0] * 4)
    )
    assert all(torch.equal(a, b) for a, b in zip(parted, whole, strict=True))


def test_the_new_model_is_the_mean_of_the_local_ones_and_the_momentum_follows_its_recursion() -> None:
    """x+ = sum p_k y_k = x + m+ and m+ = lambda m + sum p_k (y_k - x~)."""
    fed = federation(settings(algorithm=fedacg(lambda_=0.7), local=LOCAL), steady(SIZES, 4), vectors(), cohorts=COHORTS)
    state, m = initial_state(fed.parts), torch.zeros_like(fed.parts.w0)
    seen = watch(fed)
    for t in range(4):
        x = state.w
        with torch.no_grad():
            fed.run_round(state)
        r, new = seen[t]
        p = torch.tensor([SIZES[k] for k in COHORTS[t]], dtype=torch.float64)
        mean = (p / p.sum()) @ r.W
        m = 0.7 * m + mean - (x + 0.7 * m)
        assert closest(new, mean) < 1e-15
        assert closest(new, x + m) < 1e-15
        assert closest(state.server["m"], m) < 1e-14
    fed.parts.workers.close()


def test_quadratics_start_from_the_lookahead_and_are_pulled_back_to_it(quadratics: Any) -> None:
    """With beta, a becomes a + beta and z becomes (a z + beta x~) / (a + beta)."""
    a, z, sizes, lambda_, beta, lr, steps = [0.5, 2.0], [[1.0, -2.0], [3.0, 4.0]], [2, 6], 0.6, 0.7, 0.2, 4
    data, chosen = quadratics(sizes, a, z)
    local = {"steps": steps, "batch_size": 2, "lr": lr}
    models, _ = trajectory(fedacg(lambda_=lambda_, beta=beta), steady(sizes, 6, classes=2), data, local=local, **chosen)
    curvature, minima = torch.tensor(a, dtype=torch.float64).unsqueeze(1), torch.tensor(z, dtype=torch.float64)
    p, x, m = torch.tensor([0.25, 0.75], dtype=torch.float64), torch.zeros(2).double(), torch.zeros(2).double()
    for model in models:
        lookahead = x + lambda_ * m
        shrink = (1 - lr * (curvature + beta)) ** steps
        target = (curvature * minima + beta * lookahead) / (curvature + beta)
        new = p @ (shrink * lookahead + (1 - shrink) * target)
        x, m = new, new - x
        assert closest(model, x) < 1e-13
