"""Clients that come and go at their own seconds while the server updates its model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from federation.jobs import LOCAL, SIZES, made, models
from fedtide.core.errors import SettingsError
from fedtide.federation.federation import Federation
from fedtide.world.presence.visits import Visits
from fedtide.world.timeline import Timeline
from support import closest, federation, largest_gap, run_rounds, settings, steady, stepped, vectors

SECOND = {"costs": {"slot": 1.0}}


def visited(
    visits: dict[int, list[tuple[float, float]]], updates: int, period: float = 0, sizes: Sequence[int] = SIZES
) -> Timeline:
    """A world whose clients are present in these seconds."""
    rows = [visits.get(client, []) for client in range(len(sizes))]
    found = Visits.of(rows, [0] * len(sizes), [period] * len(sizes))
    return replace(steady(sizes, updates), visits=found)


def by_hand(updates: int = 5, **mode: Any) -> Federation:
    """Jobs of client 0 take 4 s, of client 1 6 s, of client 2 3 s; two at once."""
    world = visited({0: [(0, 12)], 1: [(2, 7)], 2: [(14, 20)]}, updates)
    return made({"name": "fedbuff", "buffer": 1}, [[4], [6], [3]], world, 2, mode=mode, **SECOND)[0]


def test_a_run_of_three_clients_by_hand() -> None:
    """From second 12 to 14 nobody is there.

    Client 0 starts at 0, 4 and 8 and leaves at 12, where its third result arrives. Client 1 comes at 2, starts at once and is
    cancelled at 7, after 5 of 6 seconds. Client 2 wakes the server at 14 and 17 and leaves at 20, with its second result.
    """
    found, state, records = models(by_hand())
    rows = [record.row for record in records]
    assert [record.clients["client"] for record in records] == [[0], [0], [0], [2], [2]]
    assert [row["seconds_simulated"] for row in rows] == [4, 8, 12, 17, 20]
    assert [row["latency"] for row in rows] == [4, 4, 4, 5, 3]
    assert [row["cancelled"] for row in rows] == [0, 1, 0, 0, 0]
    assert [row["energy"] for row in rows] == [4, 4 + 5, 4, 3, 3]
    assert [row["present"] for row in rows] == [2, 1, 1, 1, 1]
    assert [row["bytes_down"] for row in rows] == [72 * started for started in (2, 3, 4, 5, 6)]
    assert [row["staleness_max"] for row in rows] == [0] * 5
    assert state.events["running"] == []
    rounds = settings(algorithm={"name": "fedavg", "weighting": "uniform"}, local=LOCAL)
    cohorts = [[0], [0], [0], [2], [2]]
    expected = models(federation(rounds, steady(SIZES, 5), vectors(), cohorts=cohorts))[0]
    assert largest_gap(found, expected) < 1e-13


def test_with_finish_a_late_result_still_arrives() -> None:
    """Job 1, of client 1, ends at second 8 together with job 2 and comes first, since it started first."""
    _, _, records = models(by_hand(leave="finish"))
    assert [record.clients["client"] for record in records] == [[0], [1], [0], [0], [2]]
    assert [record.row["seconds_simulated"] for record in records] == [4, 8, 8, 12, 17]
    assert [record.clients["staleness"] for record in records] == [[0], [1], [1], [0], [0]]


def test_when_nobody_comes_any_more_the_run_ends_in_one_line() -> None:
    fed = by_hand(updates=6)
    with pytest.raises(
        SettingsError, match=r"no available client after 20 simulated seconds, so server update 6 cannot be reached"
    ):
        run_rounds(fed)
    fed.parts.workers.close()


def test_when_nobody_stays_long_enough_the_run_ends_in_one_line() -> None:
    """And does not go through the repeated trace for ever; nor does it wait for a client without data."""
    for visits, sizes in (({0: [(0, 3)]}, SIZES), ({0: [(0, 3)], 4: [(5, 6)]}, (*SIZES[:4], 0))):
        fed, _ = made({"name": "fedasync"}, [[4]] * 5, visited(visits, 2, 10, sizes), **SECOND)
        with pytest.raises(SettingsError, match=r"no client has completed a job for 1\d\d simulated sec"):
            run_rounds(fed)
        fed.parts.workers.close()


@pytest.mark.parametrize("leave", ["cancel", "finish"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("name", ["mifa", "fedvarp"])
def test_memories_are_those_of_the_clients_present(name: str, weighting: str, leave: str) -> None:
    """Visits of a repeated trace of 23 seconds; client 4 leaves for a second, which is enough to be forgotten."""
    visits = {
        0: [(0.0, 20.0)],
        1: [(3.0, 9.0), (12.0, 15.0)],
        2: [(5.0, 19.0)],
        3: [(1.0, 4.0)],
        4: [(0.0, 7.0), (8.0, 23.0)],
    }
    chosen = {"name": name, "buffer": 2, "weighting": weighting}
    fed, _ = made(chosen, [[3], [2, 4], [7], [2], [5]], visited(visits, 30, 23), 3, mode={"leave": leave}, **SECOND)
    n = torch.tensor(SIZES, dtype=torch.float64)
    populations, second = set(), 0
    for state, record in stepped(fed):
        began, second = second, int(record.row["seconds_simulated"] or 0)
        here = [k for k, own in visits.items() if any(a <= (second - 1) % 23 < b for a, b in own)]
        populations.add(tuple(here))
        assert record.row["present"] == (len(here) or 5)
        absent = [client for client in range(5) if client not in here]
        assert not state.memory["h"][absent].any()
        assert not state.seen[absent].any()
        weights = n[here] if weighting == "samples" else torch.ones(len(here), dtype=torch.float64)
        if here:
            mean = weights @ state.memory["h"][here] / weights.sum()
            assert closest(state.server["h_mean"], mean) < 1e-13
        if any(began <= 23 * k + 7 < second for k in range(20)):  # also if a result of client 4 was in the buffer
            assert not state.memory["h"][4].any()
    assert len(populations) > 3
