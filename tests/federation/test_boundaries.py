"""Session boundaries: the model a session starts from, and what happens to memories."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.federation.federation import Federation
from fedtide.world.timeline import Timeline
from matrix import matrix
from support import closest, deal, federation, run_rounds, settings, timeline, vectors, watch

SIZES = (4, 3, 5, 2)
SESSIONS = 5
LOCAL = {"epochs": 1, "batch_size": 3, "lr": 0.2}


def alternating(sessions: int = SESSIONS, rounds: int = 2, pilot: int = 1) -> Timeline:
    """Clients 0 and 1 take turns with 2 and 3."""
    session_of_round = [session for session in range(sessions) for _ in range(rounds)]
    groups = ({0: 0, 1: 1}, {2: 2, 3: 3})
    present = [groups[session % 2] for session in session_of_round]
    return timeline(deal(SIZES), present, session_of_round=session_of_round, notes={"pilot_sessions": pilot})


def starts_and_ends(fed: Federation) -> tuple[list[Tensor], list[Tensor]]:
    """Models at both ends of each session."""
    seen = watch(fed)
    run_rounds(fed)
    first = [r.w for r, _ in seen if r.session.round == 0]
    last = [w for (r, w), (after, _) in pairwise(seen) if after.session.number > r.session.number]
    return first, [*last, seen[-1][1]]


def run(initializer: Any, pilot: int = 1, **values: Any) -> tuple[Federation, list[Tensor], list[Tensor]]:
    """A federation and the ends of its sessions."""
    fed = federation(settings(initializer=initializer, local=LOCAL, **values), alternating(pilot=pilot), vectors())
    return fed, *starts_and_ends(fed)


@pytest.mark.parametrize(
    ("initializer", "pilot", "start"), matrix(plugins.names("initializers"), [1, 2], ["carry", "reset"])
)
def test_pilot_sessions_and_the_first_after_them_are_alike(initializer: str, pilot: int, start: str) -> None:
    fed, first, last = run({"name": initializer, "post_pilot_start": start}, pilot)
    assert torch.equal(first[0], fed.parts.w0)
    for session in range(1, pilot):
        assert torch.equal(first[session], last[session - 1])
    assert torch.equal(first[pilot], last[pilot - 1] if start == "carry" else fed.parts.w0)


@pytest.mark.parametrize("kept", [False, True])
def test_memories_are_cleared_at_a_boundary_or_kept(kept: bool) -> None:
    chosen = settings(algorithm="scaffold", local=LOCAL, client_state={"on_session_start": "keep" if kept else "reset"})
    fed = federation(chosen, alternating(3), vectors())
    seen: list[tuple[int, Tensor, Tensor, Tensor]] = []
    local = fed.parts.algorithm.local
    fed.parts.algorithm.local = lambda r: (  # type: ignore[method-assign]
        seen.append((r.session.round, r.server.c.clone(), r.client.c_k.clone(), r.seen.clone())) or local(r)
    )
    run_rounds(fed)
    first = [(c, c_k, known) for session_round, c, c_k, known in seen if session_round == 0]
    assert not first[0][1].any()
    c, c_k, known = first[2]  # the first group is back in the third session
    assert bool(c_k.any()) is kept
    assert bool(known.all()) is kept
    assert closest(c, c_k.mean(0)) < 1e-15
    c, c_k, known = seen[1][1:]  # inside a session everything stays
    assert bool(c_k.any())
    assert bool(known.all())


def test_server_optimizers_start_again() -> None:
    fed = federation(settings(algorithm={"name": "fedopt", "tau": 0.1}, local=LOCAL), alternating(2, 1), vectors())
    moments: list[tuple[Tensor, Tensor]] = []
    finish = fed.parts.algorithm.finish
    fed.parts.algorithm.finish = lambda r: (  # type: ignore[method-assign]
        moments.append((r.server.m.clone(), r.server.v.clone())) or finish(r)
    )
    run_rounds(fed)
    for m, v in moments:
        assert not m.any()
        assert torch.equal(v, torch.full_like(v, 0.1**2))


@pytest.mark.parametrize("restart", [True, False])
def test_the_schedule_starts_again_with_each_session(restart: bool) -> None:
    local = {**LOCAL, "schedule": "exponential", "decay": 0.5, "restart": restart}
    _, records = run_rounds(federation(settings(local=local), alternating(2, 3), vectors()))
    rates = [record.row["lr"] for record in records]
    assert rates == ([0.2, 0.1, 0.05] * 2 if restart else [0.2 * 0.5**t for t in range(6)])


def test_latest_models_of_a_session_start_at_its_initial_model() -> None:
    """A client that is not drawn counts with the session's initial model."""
    chosen = settings(local=LOCAL, evaluation={"models": ["global", "all"]})
    fed = federation(chosen, alternating(2, 1), vectors(), cohorts=[[0], [2]])
    state, records = run_rounds(fed)
    assert torch.equal(state.memory["latest"][3], state.memory["latest"][0])
    assert closest(state.memory["latest"][2], state.memory["latest"][3]) > 1e-4
    everybody = (5 * state.memory["latest"][2] + 2 * state.memory["latest"][3]) / 7
    fed = federation(chosen, alternating(2, 1), vectors())
    assert records[-1].row["test_accuracy_all"] == fed.parts.evaluator.scores((everybody, state.b)).accuracy()
    fed.parts.workers.close()


@pytest.mark.parametrize("on_session_start", ["reset", "keep"])
def test_moments_and_step_counts_start_afresh_with_a_session_unless_kept(on_session_start: str) -> None:
    """Client 0 takes two steps in each of two sessions."""
    local = {**LOCAL, "optimizer": "adam", "momentum_scope": "client", "epochs": None, "steps": 2}
    world = timeline(deal((4, 3)), [{0: 0, 1: 1}] * 2, session_of_round=[0, 1])
    chosen = settings(local=local, client_state={"on_session_start": on_session_start})
    state, _ = run_rounds(federation(chosen, world, vectors(), cohorts=[[0, 1], [0]]))
    kept = on_session_start == "keep"
    assert state.memory["optimizer.step"][:, 0].tolist() == ([4, 2] if kept else [2, 0])
    assert bool(state.memory["optimizer.exp_avg_sq"][1].any()) is kept
