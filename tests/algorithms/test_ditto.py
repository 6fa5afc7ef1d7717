"""Ditto: where the models of newcomers begin in a later session."""

import pytest
import torch

from support import deal, federation, run_rounds, settings, timeline, vectors


@pytest.mark.parametrize("kept", ["keep", "reset"])
def test_the_initial_model_is_that_of_the_session(kept: str) -> None:
    world = timeline(deal((5, 2, 7, 4)), [{k: k for k in range(4)}] * 4, session_of_round=[0, 0, 1, 1])
    algorithm = {"name": "ditto", "newcomers": "initial", "personal_lr": 1e-300}
    chosen = settings(algorithm=algorithm, client_state={"on_session_start": kept})
    half, fed = (federation(chosen, world, vectors(), cohorts=[[0], [0], [1], [2]]) for _ in range(2))
    state, _ = run_rounds(half, 2)
    second = state.w.clone()
    state, _ = run_rounds(fed, state=state)
    assert torch.equal(state.memory["v"][2], second)
    assert torch.equal(state.memory["v"][0], fed.parts.w0 if kept == "keep" else torch.zeros_like(second))
