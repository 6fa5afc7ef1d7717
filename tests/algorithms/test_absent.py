"""What MIFA, FedVARP, FedAWE, FedAU and CA-Fed have in common: FedAvg where nobody is absent; fixed points; sessions."""

from typing import Any

import pytest
import torch

from algorithms.absent_worlds import COHORTS, DECAYING, LOCAL, SIZES, available, models, start
from support import closest, federation, largest_gap, run_rounds, settings, steady, timeline, trajectory, vectors, watch

STORED = ["mifa", "fedvarp"]


@pytest.mark.parametrize("algorithm", STORED)
def test_units_differ_where_the_rate_decays(algorithm: str) -> None:
    gradient, displacement = ({"name": algorithm, "units": units} for units in ("gradient", "displacement"))
    constant = [models(method, local=LOCAL) for method in (gradient, displacement)]
    decaying = [models(method, local=DECAYING) for method in (gradient, displacement)]
    assert largest_gap(*constant) < 1e-13
    assert largest_gap(*decaying) > 1e-3


@pytest.mark.parametrize("weighting", ["uniform", "samples", "feddisco"])
@pytest.mark.parametrize("algorithm", STORED)
def test_the_stored_mean_is_that_of_the_population(algorithm: str, weighting: str) -> None:
    chosen = {"name": algorithm, "weighting": weighting}
    _, state = trajectory(chosen, steady(SIZES, 5), vectors(), local=DECAYING, cohorts=COHORTS)
    n = torch.tensor(SIZES, dtype=torch.float64)
    q = n / n.sum() if weighting == "samples" else torch.full_like(n, 1 / len(n))
    assert closest(state.server["h_mean"], q @ state.memory["h"]) < 1e-14
    assert float(state.server["h_mean"].norm()) > 1e-2


@pytest.mark.slow
def test_memories_of_the_absent_end_where_everybody_takes_part() -> None:
    """Full batches, a constant rate: the fixed point is that of FedAvg with full participation, which others miss."""
    sizes, rounds = (12, 12, 12, 12, 12), 120
    local = {"steps": 4, "batch_size": 12, "lr": 0.15, "weight_decay": 0.8}
    cohorts = available((0.9, 0.3, 0.5, 0.2, 0.4), rounds)

    def end(chosen: Any, drawn: list[list[int]]) -> torch.Tensor:
        return trajectory(chosen, steady(sizes, rounds), vectors(), local=local, cohorts=drawn, start=start())[0][-1]

    wanted = end("fedavg", [list(range(5))] * rounds)
    for algorithm in STORED:
        assert closest(end(algorithm, cohorts), wanted) < 1e-9
    for chosen in ("fedavg", {"name": "fedvarp", "beta": 0.5}):
        assert closest(end(chosen, cohorts), wanted) > 1e-3


@pytest.mark.parametrize("algorithm", ["mifa", "fedawe", "fedau", "ca_fed", {"name": "fedvarp", "clusters": 2}])
def test_a_new_session_forgets(algorithm: Any) -> None:
    """With resets, the second of two equal sessions runs like the first one."""
    shards = [list(range(5 * k, 5 * k + 5)) for k in range(3)]
    everybody = {k: k for k in range(3)}
    world = timeline(
        [torch.tensor(shard).numpy() for shard in shards], [everybody] * 6, session_of_round=[0, 0, 0, 1, 1, 1]
    )
    cohorts = [[0, 2], [1], [0, 1]] * 2
    local = {"steps": 2, "batch_size": 5, "order": "stored", "lr": 0.1}
    chosen = settings(algorithm=algorithm, local=local, initializer="restart")
    fed = federation(chosen, world, vectors(), cohorts=cohorts)
    seen = watch(fed)
    run_rounds(fed)
    for first, second in zip(seen[:3], seen[3:], strict=True):
        assert torch.equal(first[1], second[1])
