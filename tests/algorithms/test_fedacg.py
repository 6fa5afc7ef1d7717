"""FedACG: its first rounds, the momentum's recursion, and its closed form on quadratics."""

from functools import partial

import pytest
import torch

from fedtide.federation.state import initial_state
from support import deal, federation, run_rounds, settings, timeline, trajectory, vectors

LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2, "momentum": 0.9}
SIZES = (5, 2, 7)


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
