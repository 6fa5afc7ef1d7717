"""SCAFFOLD: identities, invariants of the control variates, stationary states."""

from functools import partial
from typing import Any

import pytest
import torch

from support import closest, deal, federation, largest_gap, run_rounds, settings, steady, timeline, trajectory, vectors

SIZES = (5, 2, 7, 4)
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.1}
COHORTS = [[0, 2], [1, 2, 3], [2], [0, 1, 3], [3]]


scaffold = partial(dict, name="scaffold")


@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_both_options_agree_on_one_full_batch_step(decay: float) -> None:
    local = {"epochs": 1, "batch_size": 99, "lr": 0.3, "weight_decay": decay}
    (first, a), (second, b) = (
        trajectory(scaffold(option=option), steady(SIZES, 4), vectors(), cohorts=COHORTS[:4], local=local)
        for option in ("I", "II")
    )
    assert largest_gap(first, second) < 1e-13
    assert closest(a.memory["c_k"], b.memory["c_k"]) < 1e-12


@pytest.mark.parametrize(("variant", "factor"), [("momentum_aware", 1.0), ("printed", 13.1441 / 5)])
def test_with_momentum_only_the_aware_variant_recovers_the_gradient(
    quadratics: Any, variant: str, factor: float
) -> None:
    """A constant gradient, momentum 0.9 and five steps: the plain count is wrong by 13.1441 / 5."""
    data, chosen = quadratics([2, 2], [1e-12, 1e-12], [[1e12, 2e12], [3e12, -4e12]])
    local = {"steps": 5, "batch_size": 2, "lr": 0.1, "momentum": 0.9}
    _, state = trajectory(scaffold(variant=variant), steady([2, 2], 1, classes=2), data, local=local, **chosen)
    gradients = -torch.tensor([[1.0, 2.0], [3.0, -4.0]], dtype=torch.float64)
    assert closest(state.memory["c_k"], factor * gradients) < 1e-8


@pytest.mark.parametrize(
    ("algorithm", "weighted"),
    [
        (scaffold(), False),
        (scaffold(variate_weights="samples"), True),
        (scaffold(variant="fedssg"), True),
        ("feddc", True),
        ("fedssg", True),
    ],
)
def test_a_kept_c_fits_those_who_are_present(algorithm: Any, weighted: bool) -> None:
    """Session 2 has clients 1, 2 and 3: c becomes the mean of their control variates, which stay, weighted as changes are."""
    shards = deal(SIZES)
    present = [{0: 0, 1: 1, 2: 2}] * 2 + [{1: 1, 2: 2, 3: 3}]
    world = timeline(shards, present, session_of_round=[0, 0, 1])
    chosen = settings(algorithm=algorithm, local=LOCAL, client_state={"on_session_start": "keep"})
    fed = federation(chosen, world, vectors())
    state, _ = run_rounds(fed, 2)
    kept = state.memory["c_k"].clone()
    started: list[torch.Tensor] = []
    local = fed.parts.algorithm.local
    fed.parts.algorithm.local = lambda r: started.append(r.server.c.clone()) or local(r)  # type: ignore[method-assign]
    run_rounds(fed, state=state)
    sizes = torch.tensor([float(len(shard)) for shard in shards[1:4]], dtype=kept.dtype).unsqueeze(1)
    omega = sizes / sizes.mean() if weighted else torch.ones_like(sizes)
    assert omega.unique().numel() == (len(sizes) if weighted else 1)
    assert closest(started[0], (omega * kept[1:]).mean(0)) < 1e-15
    assert not kept[3].any()
    assert torch.equal(state.memory["c_k"][0], kept[0])
