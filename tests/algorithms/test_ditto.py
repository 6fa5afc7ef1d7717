"""Ditto: FedAvg, and beside it models that are pulled toward it."""

from typing import Any

import pytest
import torch

from support import closest, deal, federation, run_rounds, settings, steady, timeline, trajectory, vectors

SIZES = (5, 2, 7, 4)
STORED = {"epochs": 2, "batch_size": 3, "lr": 0.2, "order": "stored", "weight_decay": 0.01, "clip": 0.5}


def test_the_initial_model_is_that_of_the_session() -> None:
    everybody = {client: client for client in range(4)}
    world = timeline(deal(SIZES), [everybody] * 4, clients=4, session_of_round=[0, 0, 1, 1])
    for kept in ("keep", "reset"):
        chosen = settings(
            algorithm={"name": "ditto", "newcomers": "initial", "personal_lr": 1e-300},
            local=STORED,
            client_state={"on_session_start": kept},
        )
        half, fed = (federation(chosen, world, vectors(), cohorts=[[0], [0], [1], [2]]) for _ in range(2))
        state, _ = run_rounds(half, 2)
        second = state.w.clone()
        state, _ = run_rounds(fed, state=state)
        assert torch.equal(state.memory["v"][2], second)
        assert torch.equal(state.memory["v"][0], fed.parts.w0 if kept == "keep" else torch.zeros_like(second))


ERROR = {0.0: 0.02133333, 0.5: 0.01193519, 1.0: 0.00952083, 2.0: 0.00862963, 2.133333: 0.00862411, 5.0: 0.00926157,
         10.0: 0.01005234, 100.0: 0.01124609}  # fmt: skip


def test_the_error_of_point_estimation_is_its_closed_form(quadratics: Any) -> None:
    """Eight clients whose means of 30 values with noise 0.8 estimate numbers with spread 0.1, as Ditto's authors do.

    Own models are v = M (means), rows of M sum to one, so that the expected squared error of an own model to the true number
    is (0.1^2 |M - I|^2 + 0.8^2 / 30 |M|^2) / 8 for any center. Client k's mean is the k-th unit vector: M is read off.
    """
    clients, spread, noise = 8, 0.1**2, 0.8**2 / 30
    one = torch.eye(clients, dtype=torch.float64)
    data, chosen = quadratics([1] * clients, [1.0] * clients, one.tolist())
    found = {}
    for pull in ERROR:
        algorithm = {"name": "ditto", "lambda_": pull, "personal_lr": 1 / (1 + pull)}  # one step to the minimum
        local = {"steps": 1, "batch_size": 1, "lr": 1.0}  # and to the mean of the means
        world = steady((1,) * clients, 2, classes=clients)
        (_, w), state = trajectory(algorithm, world, data, local=local, **chosen)
        M = state.memory["v"]
        assert closest(w, torch.full_like(w, 1 / clients)) < 1e-14
        assert closest(M, (one + pull / clients) / (1 + pull)) < 1e-14
        found[pull] = float(spread * (M - one).square().sum() + noise * M.square().sum()) / clients
    assert found == pytest.approx(ERROR, abs=5e-9)
    assert min(found, key=lambda pull: found[pull]) == pytest.approx(noise / spread, rel=1e-6)
