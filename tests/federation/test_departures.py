"""What is left of a device that leaves within a session, for every algorithm whose clients remember."""

from typing import Any

import pytest
import torch

from fedtide.core import plugins
from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.methods.algorithms.base import server_vectors
from matrix import matrix
from support import (
    assert_same,
    closest,
    deal,
    federation,
    images,
    light,
    needs,
    run_rounds,
    settings,
    stepped,
    timeline,
    vectors,
)

SIZES = (5, 2, 7, 4)
LOCAL = {"epochs": 1, "batch_size": 1, "lr": 0.05}
WHO = [(0, 1, 2), (0, 1, 2), (0, 2), (0, 2), (0, 1, 2, 3), (0, 1, 2, 3), (1, 3)]
"""Client 1 leaves and returns, client 3 joins, 0 and 2 leave: rounds of one session."""
COHORTS = [[0, 1, 2], [1], [0], [2], [0, 1], [2, 3], [1]]
SETTINGS = [
    *plugins.names("algorithms"),
    {"name": "fedlesam", "base": "scaffold"},
    {"name": "fedlesam", "base": "feddyn"},
    {"name": "scaffold", "variate_weights": "samples"},
    *({"name": name, "weighting": rule} for name in ("mifa", "fedvarp") for rule in ("samples", "feddisco")),
]


def prepared(algorithm: Any, kept: bool, who: Any = WHO, data: Any = None, **values: Any) -> Federation:
    """A federation whose population changes within its session."""
    world = timeline(deal(SIZES), [{k: k for k in here} for here in who], clients=4)
    chosen = settings(
        algorithm=light(algorithm) if isinstance(algorithm, str) else algorithm,
        **needs(algorithm if isinstance(algorithm, str) else algorithm["name"])
        | {"local": LOCAL, "client_state": {"on_session_start": "keep" if kept else "reset"}, **values},
    )
    return federation(chosen, world, data or vectors(), cohorts=COHORTS)


def remembers(algorithm: Any) -> bool:
    """Whether its clients keep vectors."""
    chosen = {"name": algorithm} if isinstance(algorithm, str) else algorithm
    cls: Any = plugins.load("algorithms", chosen["name"])
    return bool(cls(cls.Settings(**chosen)).client)


@pytest.mark.parametrize(("algorithm", "kept"), matrix(filter(remembers, SETTINGS), [False, True]), ids=str)
def test_means_are_those_of_the_clients_present_and_leavers_are_forgotten(algorithm: Any, kept: bool) -> None:
    """After every round: rows of absent clients are zero, every declared mean is that of the rows of those present."""
    fed = prepared(algorithm, kept)
    for here, (state, _) in zip(WHO, stepped(fed), strict=True):
        absent, n = [k for k in range(4) if k not in here], torch.tensor(SIZES, dtype=torch.float64)[list(here)]
        assert not state.seen[absent].any()
        for name in fed.parts.algorithm.client:
            assert not state.memory[name][absent].any(), name
        for vector in server_vectors(fed.parts.algorithm):
            if vector.mean_of is not None:
                weights = n / n.sum() if vector.by_size else torch.full_like(n, 1 / len(n))
                expected = weights @ state.memory[vector.mean_of][list(here)]
                assert closest(state.server[vector.name], expected) < 1e-13, vector.name


def test_a_population_that_stays_changes_nothing() -> None:
    """Clients 0 to 3 in every round: the running mean keeps its own rounding, to the bit."""
    fed = prepared("scaffold", kept=True, who=[(0, 1, 2, 3)] * 3)
    ends, starts = list[torch.Tensor](), list[torch.Tensor]()
    local = fed.parts.algorithm.local
    fed.parts.algorithm.local = lambda r: starts.append(r.server.c.clone()) or local(r)  # type: ignore
    for state, _ in stepped(fed):
        ends.append(state.server["c"].clone())
    assert all(torch.equal(end, start) for end, start in zip(ends, starts[1:], strict=False))
    assert not torch.equal(ends[-1], state.memory["c_k"].mean(0))  # another rounding: the test can tell


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cfl_core_set", "cfl_generative"])
def test_stored_samples_leave_with_their_client(name: str) -> None:
    """Nobody absent has any; one that returns stores anew, and synthetic samples stay where their positions say."""
    fed = prepared({"name": name, "size": 2}, kept=True, data=images())
    state, own, gone = initial_state(fed.parts), len(images().train_labels), 0
    for here in WHO:
        before = state.extra["stored"]
        kept = torch.isin(before[:, 0], torch.tensor(here))
        pictures = (
            state.extra["synthetic_inputs"][kept]
            if name == "cfl_generative" and len(kept)
            else images().train_inputs[:0]
        )
        with torch.no_grad():
            fed.run_round(state)
        stored = state.extra["stored"]
        assert set(stored[:, 0].tolist()) <= set(here)
        assert torch.equal(stored[: int(kept.sum()), :2], before[kept, :2])
        gone += int((~kept).sum())
        if name == "cfl_generative":
            assert stored[:, 2].tolist() == list(range(own, own + len(stored)))
            assert torch.equal(state.extra["synthetic_inputs"][: len(pictures)], pictures)
            assert torch.equal(fed.parts.data.train_inputs[own : own + len(stored)], state.extra["synthetic_inputs"])
    assert gone == 6  # clients 1, 0 and 2 have left, with two samples each
    assert set(stored[:, 0].tolist()) == {1, 3}
    fed.parts.workers.close()


@pytest.mark.slow
def test_the_controllers_of_a_leaver_start_again() -> None:
    for here, (state, _) in zip(WHO, stepped(prepared("fedgrab", kept=True)), strict=True):
        assert not state.extra["balancer"][[k for k in range(4) if k not in here]].any()
    assert state.extra["balancer"][1].any()


@pytest.mark.parametrize("chosen", [{"momentum": 0.9}, {"optimizer": "adam"}, {"optimizer": "adagrad"}], ids=str)
def test_momentum_of_a_leaver_is_forgotten(chosen: dict[str, Any]) -> None:
    """Moments and the number of steps too."""
    fed = prepared("fedavg", kept=True, local={**LOCAL, **chosen, "momentum_scope": "client"})
    for t, (state, _) in zip(range(3), stepped(fed), strict=False):
        assert all(bool(rows[1].any()) is (t < 2) for rows in state.memory.values())
    fed.parts.workers.close()


@pytest.mark.parametrize("algorithm", ["mifa", "feddyn"])
def test_kept_and_reset_agree_within_a_session(algorithm: str) -> None:
    """`on_session_start` is about the start of a session."""
    assert_same(*(run_rounds(prepared(algorithm, kept))[0] for kept in (False, True)))
