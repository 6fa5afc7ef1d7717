"""Newcomers, stayers, returners and departed clients."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedtide.world.presence.membership import GROUPS, last_round, membership
from support import timeline

CLIENTS = 5


@st.composite
def worlds(draw):
    """Random presence in rounds of random sessions."""
    presence = draw(st.lists(st.sets(st.integers(0, CLIENTS - 1), min_size=1), min_size=1, max_size=8))
    steps = draw(st.lists(st.booleans(), min_size=len(presence), max_size=len(presence)))
    sessions = np.cumsum([0, *steps[1:]])
    tables = [{client: client for client in clients} for clients in presence]
    shards = [np.array([client]) for client in range(CLIENTS)]
    made = timeline(shards, tables, clients=CLIENTS, session_of_round=sessions.tolist(), classes=1)
    return made, presence, sessions.tolist()


@given(worlds())
def test_groups_are_those_of_a_naive_reading(world):
    made, presence, sessions = world
    for t, now in enumerate(presence):
        seen = {client: {sessions[r] for r in range(t) if client in presence[r]} for client in range(CLIENTS)}
        earlier = {client: {session for session in seen[client] if session < sessions[t]} for client in seen}
        named = {
            "newcomers": [c for c in now if not earlier[c]],
            "stayers": [c for c in now if sessions[t] - 1 in earlier[c]],
            "returners": [c for c in now if earlier[c] and sessions[t] - 1 not in earlier[c]],
            "departed": [c for c in seen if seen[c] and c not in now],
        }
        expected = {group: sorted(named[group]) if sessions[t] else [] for group in GROUPS}
        assert {group: ids.tolist() for group, ids in membership(made, t).items()} == expected


@given(worlds())
def test_the_last_round_of_a_client(world):
    made, presence, _ = world
    for t in range(len(presence)):
        expected = [max((r for r in range(t + 1) if client in presence[r]), default=-1) for client in range(CLIENTS)]
        assert last_round(made, t).tolist() == expected
