"""MIFA and FedVARP without rounds: what they equal, what they store, and what is left of a client that leaves."""

from typing import Any

import pytest
import torch
from torch import Tensor

from federation.jobs import EQUAL, LOCAL, SIZES, UNEQUAL, events, line, made, models, present
from matrix import matrix
from support import closest, federation, largest_gap, run_rounds, settings, steady, stepped, vectors, watch

METHODS: list[dict[str, Any]] = [
    {"name": "mifa"},
    {"name": "mifa", "begin": "seen", "weighting": "samples", "server_lr": 0.7},
    {"name": "mifa", "begin": "wait", "units": "displacement"},
    {"name": "fedvarp", "server_lr": 0.7},
    {"name": "fedvarp", "beta": 0.4, "units": "displacement"},
    {"name": "fedvarp", "clusters": 2, "weighting": "samples"},
]
TWICE = [[1], [6], [9], [20], [8]]
"""With these lengths a fast client is in a buffer of three twice."""


def in_rounds(algorithm: dict[str, Any], cohorts: Any, executor: str) -> list[Tensor]:
    """Global models in rounds of these cohorts."""
    chosen = settings(algorithm=algorithm, local=LOCAL, engine={"executor": executor, "workers": 1})
    return models(federation(chosen, steady(SIZES, len(cohorts)), vectors(), cohorts=cohorts))[0]


@pytest.mark.parametrize(("algorithm", "executor"), matrix(METHODS, ["threads", "stacked"]), ids=str)
def test_clients_of_equal_speed_are_rounds(algorithm: dict[str, Any], executor: str) -> None:
    """Of everybody, or of those whose turn it is: then each round has absent clients with a memory."""
    engine = {"executor": executor, "workers": 1}
    together = events({**algorithm, "buffer": 5}, 5, EQUAL, engine=engine)
    assert largest_gap(together, in_rounds(algorithm, [range(5)] * 6, executor)) < 1e-13
    fed, _ = made({**algorithm, "buffer": 2}, EQUAL, steady(SIZES, 6), 2, engine=engine)
    order = line(fed)
    turns = [[order[(2 * t + place) % 5] for place in range(2)] for t in range(6)]
    assert largest_gap(models(fed)[0], in_rounds(algorithm, turns, executor)) < 1e-13


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("name", ["mifa", "fedvarp"])
def test_the_step_is_that_of_the_formula(name: str, weighting: str) -> None:
    """With stale results, learning rates that have changed since they started, and two results of one client."""
    chosen = {"name": name, "buffer": 3, "weighting": weighting}
    fed, _ = made(chosen, TWICE, steady(SIZES, 8), 5)
    seen = watch(fed)
    state, _ = run_rounds(fed)
    n = torch.tensor(SIZES, dtype=torch.float64) if weighting == "samples" else torch.ones(5, dtype=torch.float64)
    h, q = torch.zeros(5, 18, dtype=torch.float64), n / n.sum()
    for r, w in seen:
        rates = torch.tensor([[0.2 * 0.9 ** (r.t - int(tau))] for tau in r.job.staleness[:, 0]], dtype=torch.float64)
        fresh, p = (r.base - r.W) / rates, n[r.ids] / n[r.ids].sum()
        v = p @ (fresh - h[r.ids]) + q @ h
        for row, client in enumerate(r.ids):  # the later result is the second one
            h[client] = fresh[row]
        assert closest(w, r.w - 0.2 * 0.9**r.t * (q @ h if name == "mifa" else v)) < 1e-13
    assert any(len(set(r.ids)) < len(r.ids) for r, _ in seen)
    assert max(float(r.job.staleness.max()) for r, _ in seen) >= 2
    assert closest(state.memory["h"], h) < 1e-13
    assert closest(state.server["h_mean"], q @ h) < 1e-13


@pytest.mark.parametrize("lengths", [UNEQUAL, TWICE])
def test_fedvarp_without_memory_is_fedbuff_with_constant_weights(lengths: Any) -> None:
    common = {"buffer": 3, "server_lr": 0.7}
    fedbuff = events({"name": "fedbuff", "staleness": "constant", **common}, 5, lengths)
    stored_as_is = {"name": "fedvarp", "beta": 0.0, "units": "displacement", **common}
    assert largest_gap(events(stored_as_is, 5, lengths), fedbuff) < 1e-13
    constant = {**LOCAL, "schedule": "constant"}
    pair = ({"name": "fedvarp", "beta": 0.0}, {"name": "fedbuff", "staleness": "constant"})
    assert largest_gap(*(events({**one, **common}, 5, lengths, local=constant) for one in pair)) < 1e-13
    assert largest_gap(events({"name": "fedvarp", **common}, 5, lengths), fedbuff) > 1e-3


@pytest.mark.parametrize("leave", ["cancel", "finish"])
@pytest.mark.parametrize("name", ["mifa", "fedvarp"])
def test_a_leaver_is_forgotten_and_its_late_result_is_not_stored(name: str, leave: str) -> None:
    """Client 1 leaves with the second update, in slot 6, while its job of 40 slots runs; client 0 leaves and returns."""
    world = present([0, 1], [0, 1], *[[0, 2]] * 12, *[[2, 3]] * 4, *[[0, 2]] * 4)
    chosen = {"name": name, "buffer": 1, "begin": "seen"} if name == "mifa" else {"name": name, "buffer": 1}
    fed, _ = made(chosen, [[3], [40], [12], [1], [1]], world, 2, mode={"leave": leave})
    seen = watch(fed)
    arrived = list[int]()
    for t, (state, _) in enumerate(stepped(fed)):
        here = world.at(t).clients.tolist()
        absent = [client for client in range(5) if client not in here]
        assert not state.memory["h"][absent].any()
        assert not state.seen[absent].any()
        assert closest(state.server["h_mean"], state.memory["h"][here].mean(0)) < 1e-13
        r, w = seen[-1]
        arrived += [client for client in r.ids if client in absent]
        if r.ids[0] in absent:
            moved = not torch.equal(w, r.w - r.lr * r.server.h_mean / float(state.seen[here].double().mean()))
            assert moved == (name == "fedvarp")
    assert (1 in arrived) == (leave == "finish")
