"""Runs with requests that stop and go on, in several processes, with memories on disk; and their history."""

import csv
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from erasers.erased_runs import BARE, ERASERS, LOCAL, PRESENT, SESSIONS, WHOLE, asked, made, request, run, same, world
from federation.test_ranks import compare
from fedtide.authoring.rounds import assert_resumes, run_rounds
from fedtide.federation.saving import checkpoint
from fedtide.federation.state import restored_state
from support import assert_same, closest, settings, vectors


@pytest.mark.slow
@pytest.mark.parametrize(("method", "at"), [*product(ERASERS, [5]), ("retrain", 4), ("fed_eraser", 4)])
def test_an_interrupted_run_goes_on_to_the_same_bits(method: str, at: int) -> None:
    """It stops before rounds 4 and 7: before the request, or where it is made, and after it."""
    initializer = {"name": "dynamic", "gradient_rounds": 1} if at == 4 else "average"
    erase, participation = [request(method, at=at)], {"name": "fixed", "fraction": 0.7}
    chosen = settings(erase=erase, local=LOCAL, initializer=initializer, participation=participation)
    assert_resumes((chosen, world(PRESENT, SESSIONS), vectors()))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn"])
def test_memories_resume_too(algorithm: str) -> None:
    erase = [request("retrain", [0], 3), request("continue_training", [3], 5)]
    chosen = settings(erase=erase, local=LOCAL, algorithm=algorithm)
    assert_resumes((chosen, world(PRESENT, SESSIONS), vectors()))


@pytest.mark.slow
@pytest.mark.parametrize("stop", [3, 4, 5])
@pytest.mark.parametrize(("method", "algorithm"), [("retrain", "scaffold"), ("conda", "fedavg"), ("pga", "fedavg")])
def test_a_run_with_memories_on_disk_goes_on(method: str, algorithm: str, stop: int, tmp_path: Path) -> None:
    """Rows are saved as they were written; those of erased clients are saved as cleared, and retrained ones as replaced."""
    values = {"algorithm": algorithm, "client_state": {"storage": "disk"}, "evaluation": {"models": ["global", "all"]}}
    values["participation"] = {"name": "fixed", "fraction": 0.5}
    asks = [request(method, [0, 2], at=4)]
    whole, _ = run_rounds(made(asks, **values))
    plain, _ = run_rounds(made(asks, **{**values, "client_state": {}}))
    assert_same(whole, plain)
    fed, saves = made(asks, **values), checkpoint.Generations(tmp_path)
    state = None
    for rounds in (2, stop - 2):  # the second state is an addition to the first one
        state, _ = run_rounds(fed, rounds, state)
        saves.save(checkpoint.Saved("run", state.round, {}, state.tensors()))
        fed = made(asks, **values)
    found, _ = checkpoint.load(tmp_path, "run")
    assert found is not None
    rest, _ = run_rounds(fed, 6 - stop, restored_state(fed.parts, found.values))
    assert_same(whole, rest)


@pytest.mark.parametrize(
    ("method", "values"),
    [("fed_eraser", {"interval": 1}), ("puf", {"form": "special"}), ("puf", {}), ("conda", {}), ("pga", {}), ("retrain", {})],
    ids=str,
)  # fmt: skip
def test_two_processes_erase_to_the_same_bits(method: str, values: dict[str, Any]) -> None:
    compare("fedavg", "threads", 2, LOCAL, communication=False, erase=[request(method, at=2, **values)])


@pytest.mark.parametrize("method", ["retrain", "fed_eraser", "conda"])
def test_clients_that_leave_are_erased_as_if_they_were_listed(method: str) -> None:
    """Where they leave, and later: nothing in the rounds to come depends on when they ask, but for the model."""
    present = [(0, 1, 2, 3)] * 4 + [(0, 2)] * 2 + [(0, 1, 2, 3)] * 2
    leavers = {**request(method), "leavers": True}
    del leavers["clients"]
    leaving, listed = (run([asks], world(present), evaluation=BARE) for asks in (leavers, request(method, [1, 3])))
    assert same(leaving.models, listed.models)
    assert leaving.rows[4]["erased"] == 2
    assert [row["present"] for row in leaving.rows] == [4] * 4 + [2] * 4
    back = run([{**leavers, "after": "returns"}], world(present), evaluation=BARE)
    assert [row["present"] for row in back.rows] == [4] * 4 + [2] * 2 + [4] * 2
    assert same(back.models[:6], leaving.models[:6])


def test_clients_are_named_by_share_number_and_modulus() -> None:
    """Larger shares keep the clients of smaller ones."""
    found = {}
    for way in ({"number": 1}, {"number": 2}, {"share": 0.5}, {"share": 0.75}, {"modulus": 2, "below": 1}):
        fed = made([{"name": "continue_training", "at": 2, **way}])
        found[str(way)] = set(fed.parts.features[0].requests[0].ids.tolist())  # type: ignore[attr-defined]
    one, two, half, most, even = found.values()
    assert one < two == half < most
    assert even == {0, 2}


def test_attackers_are_erased_with_their_poisoned_samples() -> None:
    """A special round at rate -1 is training of the attackers as they train: on flipped labels."""
    asks = {"name": "puf", "attackers": True, "at": 4, "form": "special", "eta": -1}
    values: dict[str, Any] = {"attack": {"name": "label_flip", "share": 0.25}, "local": WHOLE}
    _, state, feature = asked(asks, **values)
    attacker = feature.requests[0].ids.tolist()
    plain = run((), world(), [[0, 1, 2, 3]] * 4 + [attacker] * 2, **values)
    assert closest(state.w, plain.models[4]) < 1e-13


@pytest.mark.slow
def test_the_history_of_a_run_in_which_nobody_is_left_in_some_rounds(fedtide: Any, folder: Path) -> None:
    """A line each, with empty cells; detectors, attacks and memories are idle, too."""
    changes = [
        "scenario={name: static, rounds: 8, num_clients: 4}",
        "participation={name: sampled, count: 1}",
        "erase=[{name: retrain, clients: [0, 1], at: 2}, {name: continue_training, clients: [2], at: 4}]",
        "detector={name: adwin, response: start_session, watch: clients}",
        "evaluation={clients_every: 1, consistency: true, models: [global, all]}",
        "checkpoint.every=3",
    ]
    call = fedtide("run", "--name", "erased", *(part for change in changes for part in ("--set", change)))
    assert call.status == 0, call.err
    with (folder / "runs" / "erased" / "history.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    idle = [row for row in rows if row["selected"] == "0"]
    assert len(rows) == 8
    assert 1 <= len(idle) <= 6
    assert {row["train_loss"] for row in idle} == {""}
    assert {row["alarm"] for row in idle} == {""}
    assert all(row["test_accuracy"] and row["erased"] for row in rows)
