"""Models that initializers store: who brings an erased client back; and several requests in one run."""

from typing import Any

import pytest
import torch

from erasers.erased_runs import (
    BARE,
    ERASERS,
    LOCAL,
    PRESENT,
    SESSIONS,
    WHOLE,
    asked,
    linear,
    made,
    request,
    run,
    same,
    world,
)
from matrix import matrix
from support import closest, largest_gap

DYNAMIC = {"name": "dynamic", "gradient_rounds": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "initializer"), matrix(sorted(ERASERS.keys() - {"continue_training"}), ["average", DYNAMIC])
)
def test_stored_models_undo_any_erasure_at_the_start_of_a_session(initializer: Any, method: str) -> None:
    """The start does not look at the current model: all methods are as if nothing was done, to the bit."""
    values = {"form": "special"} if method == "puf" else {}
    erased, left = (
        run([request(name, at=6, **more)], world(PRESENT, SESSIONS), PRESENT, initializer=initializer)
        for name, more in ((method, {"store": "keep", **values}), ("continue_training", {}))
    )
    assert same(erased.models, left.models)
    assert erased.rows[6]["tainted_weight"] == pytest.approx(1)
    assert erased.rows[6]["erased_memory_left_start"] in (1, None)


@pytest.mark.parametrize("at", [5, 6])
def test_without_mixtures_it_does_not_matter_what_becomes_of_stored_models(at: int) -> None:
    kept, dropped, erased = (
        run([request("weight_negation", at=at, store=store)], world(PRESENT, SESSIONS), PRESENT, evaluation=BARE)
        for store in ("keep", "drop", "erase")
    )
    assert same(kept.models, dropped.models)
    assert same(kept.models, erased.models)


@pytest.mark.parametrize("method", ["continue_training", "weight_negation"])
def test_a_session_that_starts_afresh_has_no_gap(method: str) -> None:
    erased = run([request(method, at=5)], world(PRESENT, SESSIONS), PRESENT, initializer="restart")
    assert erased.rows[6]["erased_excess_start"] == 0
    assert (erased.rows[6]["erased_gap"], erased.rows[5]["erased_gap"] > 0) == (0, True)
    assert erased.rows[6]["tainted_weight"] == 0


@pytest.mark.parametrize(
    ("store", "touch", "weight"),
    [("keep", "descent", 1 / 2), ("drop", "took_part", 1 / 2), ("drop", "descent", 0), ("erase", "descent", 0)],
)
def test_the_weight_of_models_that_descend_from_the_client(store: str, touch: str, weight: float) -> None:
    """Client 0 was in sessions 0 and 2; session 1 goes on from its model, and session 3 is the mean of 1 and 2."""
    asks = request("retrain", [0], 5, store=store, touch=touch)
    erased = run([asks], world(PRESENT, SESSIONS), PRESENT, initializer="average")
    assert erased.rows[6]["tainted_weight"] == weight


@pytest.mark.parametrize("initializer", ["average", DYNAMIC], ids=["average", "dynamic"])
def test_a_second_request_goes_on_from_the_world_without_the_first(initializer: Any) -> None:
    """Before it the run is the world without client 0, and then that without 0 and 3; measures are of the last request."""
    asks = [request("retrain", [0], 3), request("retrain", [3], 5)]
    erased = run(asks, world(PRESENT, SESSIONS), PRESENT, initializer=initializer)
    first, both = (run((), world(PRESENT, SESSIONS, ids), PRESENT, initializer=initializer) for ids in ([0], [0, 3]))
    assert same(erased.models[3:5], first.models[3:5])
    assert same(erased.models[5:], both.models[5:])
    assert [row["erased"] for row in erased.rows] == [0, 0, 0, 1, 1, 2, 2, 2]
    assert [row["erased_gap"] for row in erased.rows[3:]] == [0] * 5
    assert [row["erased_gap"] for row in erased.rows[:3]] == [None] * 3


@pytest.mark.slow
def test_models_of_a_retrained_run_are_what_a_later_request_finds() -> None:
    """Stored models are negated twice, once for each of two requests, after the first one retrained them."""
    asks = [request("retrain", [0], 4), request("weight_negation", [3], 5, store="erase", bias=True)]
    values = {"initializer": "average", "model": "softmax_regression"}
    erased = run(asks, world(PRESENT, SESSIONS), PRESENT, **values)
    without = run((), world(PRESENT, SESSIONS, [0]), PRESENT, **values)
    assert same(erased.models[4:5], without.models[4:5])
    total = erased.state.initializer["sum_w"] - erased.models[5] - erased.models[7]
    assert closest(total, -without.models[3]) < 1e-12


COHORTS = [[2], [0, 2], [1, 2], [1, 3], [0, 1, 2, 3], [1, 3], [1, 2]]


def test_a_rollback_cannot_reach_models_of_an_earlier_request() -> None:
    """Client 0 was there from round 1 on, client 3 from round 3 on: the models of rounds 2 to 4 know client 0."""
    asks = [request("rollback", [0], 4, every=1), request("rollback", [3], 5, every=1)]
    erased = run(asks, world(7), COHORTS, local=WHOLE)
    rest = run((), world(7, without=[0, 3]), [*COHORTS[:1], *COHORTS[5:], *COHORTS[:4]], local=WHOLE)
    assert torch.equal(erased.models[0], rest.models[0])
    assert same(erased.models[5:], rest.models[1:3])


@pytest.mark.slow
@pytest.mark.usefixtures("drop_in")
@pytest.mark.parametrize("method", ["fed_eraser", "retrain"])
@pytest.mark.parametrize("first", ["fed_eraser", "continue_training", "retrain"])
def test_two_requests_erase_both(first: str, method: str) -> None:
    """With constant gradients: the model is the sum of the others' updates, w_0 + sum_t sum_k p_k D_k.

    In round 2 only client 1 was drawn, who is erased by then; nobody is there to be repeated.
    """
    values, D = linear("uniform")
    cohorts = [[0, 1], [0, 2, 3], [1], [0, 2, 3], [1, 2], [2, 3], [0]]
    exact = {"interval": 1, "ratio": 1.0}
    asks = [
        request(name, [client], at, **(exact if name == "fed_eraser" else {}))
        for name, client, at in ((first, 1, 2), (method, 3, 5))
    ]
    fed = made((), **values)
    way = D[0] + (D[0] + D[2]) / 2 + (D[0] + D[2]) / 2 + D[2]
    erased = run(asks, world(7), cohorts, **values)
    assert closest(erased.models[5], fed.parts.w0 + way + D[2]) < 1e-14
    assert erased.rows[2]["selected"] == 0


def test_means_are_over_clients_that_no_request_has_erased() -> None:
    asks = [request("continue_training", [0], 2), request("continue_training", [1], 4)]
    erased = run(asks, world(7), COHORTS, algorithm="scaffold")
    _, state, _ = asked(asks[1], world(7, without=[0]), COHORTS, algorithm="scaffold")
    rows = erased.state.memory["c_k"]
    assert closest(erased.state.server["c"], rows[[2, 3]].mean(0)) < 1e-15
    assert not rows[:2].any()
    assert closest(state.server["c"], state.memory["c_k"][[2, 3]].mean(0)) < 1e-15


def test_memories_of_the_others_are_reset_or_kept() -> None:
    kept, reset = (
        asked(request("weight_negation", memory=memory), world(7), COHORTS, algorithm="scaffold", local=LOCAL)[1]
        for memory in ("keep", "reset")
    )
    assert kept.memory["c_k"][2].any()
    assert not kept.memory["c_k"][1].any()
    assert not reset.memory["c_k"].any()
    assert not reset.server["c"].any()


@pytest.mark.slow
def test_costs_add_up() -> None:
    asks = [request("fed_eraser", [0], 4, interval=1), request("fed_eraser", [3], 5, interval=1)]
    erased = run(asks, world(7), COHORTS)
    one = run(asks[:1], world(7), COHORTS)
    assert largest_gap(one.models[:5], erased.models[:5]) == 0
    for name in ("gradients_retained", "down", "up", "rounds", "stored"):
        costs = [row[f"erase_{name}"] for row in erased.rows]
        assert costs[:4] == [0] * 4
        assert costs[4] == one.rows[6][f"erase_{name}"] > 0
        assert costs[5] == costs[6] > costs[4]
