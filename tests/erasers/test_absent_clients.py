"""The world without erased clients: what it shares with the run, empty rounds, and that retraining leads into it."""

from typing import Any

import pytest
import torch

from erasers.erased_runs import ERASERS, LOCAL, PRESENT, SESSIONS, WHOLE, made, request, run, same, seen, world
from fedtide.federation.state import restored_state
from matrix import matrix
from support import largest_gap, run_rounds

NEVER = [[0, 2], [2, 3], [0, 2, 3], [0, 3]]
LATE = [[0, 2], [2, 3], [0, 1, 2], [0, 1], [1, 3], [0, 1, 2, 3]]
"""Client 1 takes part from round 2 on."""
INITIALIZERS: list[dict[str, Any]] = [
    {"name": "previous"},
    {"name": "average"},
    {"name": "dynamic", "gradient_rounds": 1},
    {"name": "continuous"},
    {"name": "restart"},
]


@pytest.mark.parametrize("method", ERASERS)
def test_a_client_that_never_took_part_leaves_nothing_to_erase(method: str) -> None:
    erased = run([request(method, at=2)], world(4), NEVER)
    assert same(erased.models, run((), world(4), NEVER).models)
    assert [row["erased"] for row in erased.rows] == [0, 0, 1, 1]
    assert erased.rows[-1]["erased_gap"] is None
    assert sum(erased.rows[-1][name] for name in erased.rows[-1] if name.startswith("erase_")) == 0


def test_the_counterfactual_begins_where_the_client_does() -> None:
    """It is the run before, and from the state that is kept there it is the run from the start, to the bit."""
    erased, without = run([request("continue_training")], world(), LATE), run((), world(without=[1]), LATE)
    assert same(erased.models[:2], without.models[:2])
    assert min(erased.without) == 2
    assert same([erased.without[t] for t in range(2, 6)], without.models[2:])
    assert not torch.equal(erased.models[2], without.models[2])


def test_everybody_but_one_erased_is_training_of_that_one_in_its_rounds() -> None:
    cohorts = [[0, 1], [1, 2], [0, 3], [2, 3], [0, 1], [1], [0]]
    erased = run([request("retrain", [1, 2, 3], at=6)], world(7), cohorts, local=WHOLE)
    alone = run((), world([[0]] * 4), [[0]] * 4, local=WHOLE)
    assert same([erased.without[t] for t in (0, 2, 4, 6)], alone.models)
    assert torch.equal(erased.models[6], alone.models[3])


@pytest.mark.parametrize(
    "algorithm",
    [{"name": "fedopt", "optimizer": "sgd"}, {"name": "fedopt", "optimizer": "adam"}, "scaffold", "feddyn"],
    ids=str,
)
def test_nothing_happens_in_a_round_whose_clients_are_all_erased(algorithm: Any) -> None:
    cohorts = [[0, 1], [2, 3], [0, 1], [2], [1], [0, 2]]
    models = ["global", "participants", "ensemble", "all"]
    evaluation = {"models": models, "clients_every": 1, "consistency": True}
    erased = run([request("continue_training", at=3)], world(), cohorts, algorithm=algorithm, evaluation=evaluation)
    assert torch.equal(erased.models[4], erased.models[3])
    assert same(list(erased.servers[4].values()), list(erased.servers[3].values()))
    idle = erased.rows[4]
    assert (idle["selected"], idle["completed"], idle["exchanges"]) == (0, 0, 0)
    assert idle["bytes_up"] == erased.rows[3]["bytes_up"]
    assert idle["test_accuracy"] == erased.rows[3]["test_accuracy"]
    assert not torch.equal(erased.models[5], erased.models[4])


@pytest.mark.parametrize(("initializer", "at"), matrix(INITIALIZERS, [4, 5]))
def test_retraining_leads_into_the_counterfactual(initializer: dict[str, Any], at: int) -> None:
    """To the bit, from the request on, at the start of a session and within one."""
    there, without = (world(PRESENT, SESSIONS, gone) for gone in ([], [0]))
    erased = run([request("retrain", [0], at)], there, PRESENT, initializer=initializer)
    assert same(erased.models[at:], run((), without, PRESENT, initializer=initializer).models[at:])
    row = erased.rows[at]
    assert (row["erased_gap"], row["erased_excess_step"], row["erased_remembered"]) == (0, 0, 0.5)


def test_a_client_that_returns_comes_back_as_a_new_one() -> None:
    """The counterfactual is without it before the request only."""
    erased = run([request("retrain", [1], after="returns")], world(), LATE, algorithm="scaffold")
    present = [(0, 2, 3)] * 4 + [(0, 1, 2, 3)] * 2
    without = run((), world(present), LATE, algorithm="scaffold")
    assert largest_gap(erased.models[4:], without.models[4:]) < 1e-15
    assert erased.state.counts.tolist() == without.state.counts.tolist()
    assert [row["selected"] for row in erased.rows] == [len(cohort) for cohort in LATE]


def test_a_session_of_erased_clients_alone_ends_as_it_starts() -> None:
    """It is stored like any other; its gradient rounds do nothing."""
    present = [(0, 3), (0, 3), (0, 1), (0, 1), (3,), (3,), (0, 1), (0, 1)]
    erased = run(
        [request("continue_training", [3], at=4)], world(present, SESSIONS), present, initializer=INITIALIZERS[2]
    )
    assert same(erased.models[4:6], [erased.models[4]] * 2)
    assert [row["present"] for row in erased.rows] == [2, 2, 2, 2, 0, 0, 2, 2]


@pytest.mark.usefixtures("drop_in")
def test_an_alarm_that_the_counterfactual_does_not_raise_begins_no_session() -> None:
    silent = {"name": "after", "losses": 3, "least": 1e9, "watch": "server", "response": "start_session"}
    values = {"detector": silent, "initializer": "restart", "local": {**LOCAL, "schedule": "cosine", "restart": True}}
    losses = [run((), world(without=gone), LATE, **values).rows[2]["train_loss"] for gone in ((), (1,))]
    assert losses[1] < losses[0]
    values |= {"detector": {**silent, "least": sum(losses) / 2}}
    erased = run([request("retrain", at=3)], world(), LATE, **values)
    without = run((), world(without=[1]), LATE, **values)
    assert [row["session"] for row in run((), world(), LATE, **values).rows] == [1, 1, 1, 2, 2, 2]
    assert [row["session"] for row in erased.rows[4:]] == [row["session"] for row in without.rows[4:]] == [1, 1]
    assert same(erased.models[3:], without.models[3:])
    first = seen(made([request("retrain", at=3)], world(), LATE, **values), 4)
    fed = made([request("retrain", at=3)], world(), LATE, **values)
    state = restored_state(fed.parts, first.state.tensors())
    state, (record,) = run_rounds(fed, 1, state)
    assert record.row["session"] == 1
    assert torch.equal(state.w, erased.models[4])
