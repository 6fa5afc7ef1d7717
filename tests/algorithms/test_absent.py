"""MIFA, FedVARP, FedAWE and FedAU beyond their golden runs: clusters, intervals, echoes, sessions."""

from typing import Any

import pytest
import torch

from support import closest, deal, federation, run_rounds, settings, steady, timeline, trajectory, vectors, watch

SIZES = (5, 2, 7, 4)
COHORTS = [[0, 2], [1, 2, 3], [2], [0, 1, 3], [3]]
LOCAL: dict[str, Any] = {"epochs": 2, "batch_size": 3, "lr": 0.1, "weight_decay": 0.01}
DECAYING = {**LOCAL, "schedule": "exponential", "decay": 0.8}


@pytest.mark.parametrize("algorithm", ["mifa", "fedawe", "fedau", "ca_fed", {"name": "fedvarp", "clusters": 2}])
def test_a_new_session_forgets(algorithm: Any) -> None:
    """With resets, the second of two equal sessions runs like the first one."""
    world = timeline(deal((5, 5, 5)), [{k: k for k in range(3)}] * 6, session_of_round=[0, 0, 0, 1, 1, 1])
    cohorts = [[0, 2], [1], [0, 1]] * 2
    local = {"steps": 2, "batch_size": 5, "order": "stored", "lr": 0.1}
    chosen = settings(algorithm=algorithm, local=local, initializer="restart")
    fed = federation(chosen, world, vectors(), cohorts=cohorts)
    seen = watch(fed)
    run_rounds(fed)
    for first, second in zip(seen[:3], seen[3:], strict=True):
        assert torch.equal(first[1], second[1])


def test_nobody_waits_for_a_client_without_data() -> None:
    waiting, start = {"name": "mifa", "begin": "wait"}, torch.zeros(18, dtype=torch.float64)
    world, cohorts = steady((5, 2, 7, 0), 3), [[0, 2], [1], [2]]
    ours, _ = trajectory(waiting, world, vectors(), cohorts=cohorts, start=start, local=LOCAL)
    assert torch.equal(ours[0], start)
    assert closest(ours[1], start) > 1e-3


def test_two_clusters_by_hand() -> None:
    """Clients 0 and 2 share z_0, clients 1 and 3 z_1; a cluster without a participant keeps its memory."""
    chosen = {"name": "fedvarp", "clusters": 2, "weighting": "samples", "beta": 0.5}
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


def test_only_clients_that_are_present_wait() -> None:
    """Client 1 joins in the third round: it has not waited before."""
    world = timeline(deal((5, 6)), [{0: 0}, {0: 0}, {0: 0, 1: 1}, {0: 0, 1: 1}])
    _, state = trajectory("fedau", world, vectors(), local=LOCAL, cohorts=[[0], [0], [0], [0, 1]])
    assert state.extra["intervals"].tolist() == [4, 2]
    assert state.extra["recorded"].tolist() == [4, 1]


@pytest.mark.parametrize("on_session_start", ["reset", "keep"])
def test_a_session_starts_the_echoes_and_first_models_of_fedawe_again(on_session_start: str) -> None:
    """Two sessions of three rounds; client 2 has never taken part before the second one."""
    world = timeline(deal((5, 6, 7)), [{0: 0, 1: 1, 2: 2}] * 6, session_of_round=[0, 0, 0, 1, 1, 1])
    client_state = {"on_session_start": on_session_start}
    chosen = settings(algorithm="fedawe", local=DECAYING, initializer="restart", client_state=client_state)
    fed = federation(chosen, world, vectors(), cohorts=[[0], [1], [0, 1], [1], [0, 2], [2]])
    seen = watch(fed)
    state, records = run_rounds(fed)
    assert [record.clients["echo"] for record in records[3:]] == [[1.0], [2.0, 2.0], [1.0]]
    assert torch.equal(seen[3][0].w, fed.parts.w0)
    assert torch.equal(state.server["x0"], fed.parts.w0)


def test_a_device_that_left_within_a_session_returns_as_a_newcomer() -> None:
    world = timeline(deal((5, 6)), [{0: 0, 1: 1}, {0: 0}, {0: 0, 1: 1}])
    chosen = settings(algorithm={"name": "fedawe", "newcomers": "current"}, local=LOCAL, participation="all")
    _, records = run_rounds(federation(chosen, world, vectors()))
    assert [record.clients["echo"] for record in records] == [[1.0, 1.0], [1.0], [1.0, 1.0]]
