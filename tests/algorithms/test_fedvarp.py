"""FedVARP, its clusters, and FedStale's factor."""

from functools import partial

import pytest
import torch

from algorithms.absent_worlds import COHORTS, DECAYING, SIZES, UNIFORM, models, start
from support import closest, federation, largest_gap, run_rounds, settings, steady, trajectory, vectors, watch

varp = partial(dict, name="fedvarp")


@pytest.mark.parametrize("cohort", [[1], [0, 3], [0, 1, 2, 3]])
def test_the_first_round_is_that_of_fedavg(cohort: list[int]) -> None:
    for chosen in (varp(), varp(clusters=3)):
        assert closest(models(chosen, [cohort])[0], models(UNIFORM, [cohort])[0]) < 1e-15


def test_the_step_is_that_of_the_formula() -> None:
    """Also: one participant with equal weights is SAGA, and v - sum q h' = sum_S (p - q) (h' - h), MIFA's step apart."""
    fed = federation(settings(algorithm=varp(), local=DECAYING), steady(SIZES, 5), vectors(), cohorts=COHORTS)
    seen = watch(fed)
    run_rounds(fed)
    stored, q = torch.zeros(4, 18, dtype=torch.float64), 1 / 4
    for r, w in seen:
        v, before = (r.w - w) / r.lr, stored.clone()
        stored[r.ids] = (r.w - r.W) / r.lr
        change = stored[r.ids] - before[r.ids]
        assert closest(v - stored.mean(0), ((1 / len(r.ids) - q) * change).sum(0)) < 1e-13
        if len(r.ids) == 1:
            assert closest(v, change[0] + before.mean(0)) < 1e-13


def test_two_clusters_by_hand() -> None:
    """Clients 0 and 2 share z_0, clients 1 and 3 z_1; a cluster without a participant keeps its memory."""
    chosen = varp(clusters=2, weighting="samples", beta=0.5)
    fed = federation(settings(algorithm=chosen, local=DECAYING), steady(SIZES, 5), vectors(), cohorts=COHORTS)
    seen = watch(fed)
    state, _ = run_rounds(fed)
    n = torch.tensor(SIZES, dtype=torch.float64)
    z, mass = torch.zeros(2, 18, dtype=torch.float64), torch.stack([n[0::2].sum(), n[1::2].sum()]) / n.sum()
    for r, w in seen:
        fresh, ids = (r.w - r.W) / r.lr, torch.tensor(r.ids)
        p = n[ids] / n[ids].sum()
        v = p @ (fresh - 0.5 * z[ids % 2]) + 0.5 * mass @ z
        assert closest(w, r.w - r.lr * v) < 1e-14
        for c in (0, 1):
            if (inside := ids % 2 == c).any():
                z[c] = n[ids][inside] @ fresh[inside] / n[ids][inside].sum()
    assert closest(torch.stack([state.server["z_0"], state.server["z_1"]]), z) < 1e-14
    assert "h" not in state.memory


def test_equal_updates_are_the_step() -> None:
    """All clients hold the same data, so every stored update at one model is the same: v is that update."""
    data = vectors(12)
    doubled = type(data)(**{**vars(data), "train_inputs": data.train_inputs.repeat(3, 1)})
    doubled = type(data)(**{**vars(doubled), "train_labels": data.train_labels.repeat(3)})
    local = {"steps": 1, "batch_size": 12, "order": "stored", "lr": 0.1}
    cohorts = [[0, 1, 2], [1], [0, 2]]
    ours, _ = trajectory(varp(), steady((12, 12, 12), 3), doubled, cohorts=cohorts, start=start(), local=local)
    alone, _ = trajectory("fedavg", steady((12,), 3), data, cohorts=[[0]] * 3, start=start(), local=local)
    assert largest_gap(ours[:2], alone[:2]) < 1e-14
