"""The released SCAFFOLD: FedAvg with the local learning rate as server step, and a variate without influence."""

import pytest
import torch

from fedtide.federation.state import initial_state
from support import closest, federation, run_rounds, settings, steady, vectors, watch

LOCAL = {"capped_steps": 5, "batch_size": 2, "momentum": 0.9}
SIZES = (5, 2, 7)
COHORTS = [[0, 2], [1, 2], [0], [0, 1, 2]]
NAME = "scaffold_released"


@pytest.mark.parametrize("lr", [0.03, 0.5])
def test_a_round_goes_the_share_eta_of_fedavgs_way(lr: float) -> None:
    """The rate is the round's: it falls from round to round."""
    local = {**LOCAL, "lr": lr, "schedule": "polynomial", "min_lr_ratio": 0.1}
    fed = federation(settings(algorithm=NAME, local=local), steady(SIZES, 4), vectors(), cohorts=COHORTS)
    plain = federation(settings(algorithm="fedavg", local=local), steady(SIZES, 4), vectors(), cohorts=COHORTS)
    seen = watch(fed)
    run_rounds(fed)
    assert seen[3][0].lr < lr
    for t, (r, new) in enumerate(seen):
        start = initial_state(plain.parts)
        start.round, start.w = t, r.w.clone()
        with torch.no_grad():
            plain.run_round(start)
        assert closest(new - r.w, r.lr * (start.w - r.w)) < 1e-15
        assert closest(new, r.w) > 1e-5
    plain.parts.workers.close()


def test_the_variate_is_the_mean_gradient_along_the_way_and_changes_nothing() -> None:
    """c+ = sum p_k (x - y_k) / (eta E_k) whatever c was, with the steps each client took: 3, 1 and 4."""
    local = {**LOCAL, "lr": 0.2}
    models = []
    for start in (0.0, 7.0):
        fed = federation(settings(algorithm=NAME, local=local), steady(SIZES, 3), vectors())
        seen, state = watch(fed), initial_state(fed.parts)
        state.server["c"].fill_(start)
        run_rounds(fed, state=state)
        r, _ = seen[-1]
        steps = torch.tensor([[3.0], [1.0], [4.0]], dtype=torch.float64)
        p = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
        assert closest(state.server["c"], p @ ((r.w - r.W) / (0.2 * steps))) < 1e-13
        models.append(state.w)
    assert torch.equal(*models)
