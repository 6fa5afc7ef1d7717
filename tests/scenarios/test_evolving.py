"""Evolving data: what a client holds when, how windows overlap, and that clients may come and go meanwhile."""

import numpy as np
import pytest

from fedtide.core.errors import SettingsError
from fedtide.federation.assembly.footprint import advice
from fedtide.report.picture import presence
from fedtide.world.building.build import build_timeline
from support import federation, vectors
from support import settings as run_settings
from worlds import plugin, timeline, world

SMALL = {"num_clients": 4, "subsets": 5, "rounds_per_session": 12}


def given_(**chosen):
    return world(partition="dirichlet_prior", alpha=0.5, **chosen)


def held(made, t):
    """Positions of each client in a round."""
    here = made.at(t)
    return {
        client: made.shards[shard] for client, shard in zip(here.clients.tolist(), here.shards.tolist(), strict=True)
    }


def test_every_round_a_client_holds_one_of_its_own_subsets():
    world_ = given_()
    made = timeline("evolving", world_, **SMALL)
    assert len(made.shards) == 4 * 5
    assert {len(shard) for shard in made.shards} == {len(world_.train) // 4 // 5}
    everything = np.concatenate(made.shards)
    assert len(np.unique(everything)) == len(everything)
    assert not np.isin(everything, world_.validation).any()
    visited = np.array([made.at(t).shards for t in range(made.rounds)])
    assert (visited // 5 == np.arange(4)).all()
    assert len(np.unique(visited)) > 10  # not always the same one


def test_a_longer_run_begins_like_a_shorter_one():
    short, long = (timeline("evolving", given_(), **SMALL | {"rounds_per_session": rounds}) for rounds in (4, 9))
    assert [short.at(t).shards.tolist() for t in range(4)] == [long.at(t).shards.tolist() for t in range(4)]


@pytest.mark.parametrize(("overlap", "step"), [(0.0, 21), (0.25, 15), (0.5, 10)])
def test_consecutive_windows_share_what_is_asked_for(overlap, step):
    """Windows of 21 samples move on by 21, floor(15.75) = 15 and floor(10.5) = 10: published 285, 213, 142 of 285."""
    chosen = SMALL | {"drift": "pointer", "overlap": overlap, "window": 21}
    made = timeline("evolving", given_(), **chosen)
    for t in range(made.rounds - 1):
        before, after = held(made, t), held(made, t + 1)
        for client, positions in before.items():
            assert len(np.unique(positions)) == 21
            assert len(np.intersect1d(positions, after[client])) == 21 - step


def test_a_window_that_reaches_the_end_wraps_around():
    made = timeline("evolving", given_(), **SMALL | {"drift": "pointer"})
    size = len(made.shards[0])
    turns = [held(made, t)[2].tolist() for t in range(10)]
    assert turns[:5] == turns[5:]
    assert len(np.unique(np.concatenate(turns))) == 5 * size


def test_fresh_subsets_are_disjoint_within_a_round_and_new_in_every_round():
    made = timeline("evolving", given_(), **SMALL | {"drift": "fresh", "window": 30})
    for t in range(made.rounds):
        positions = np.concatenate(list(held(made, t).values()))
        assert len(np.unique(positions)) == len(positions) == 4 * 30
    assert len(np.unique(np.concatenate([made.at(t).shards for t in range(made.rounds)]))) == 4 * made.rounds


@pytest.mark.parametrize("drift", ["visits", "pointer", "fresh"])
def test_arrivals_and_departures_do_not_change_what_the_others_hold(drift):
    """Data moves on with the rounds, not with participation."""
    chosen = SMALL | {"num_sessions": 4, "rounds_per_session": 3, "drift": drift}
    everybody = timeline("evolving", given_(), **chosen)
    some = timeline("evolving", given_(), **chosen, first_clients=2, p_leave=0.5, arrivals=1)
    there = presence(some)
    assert there[:2, 0].all()
    assert not there[2:, 0].any()
    assert len({tuple(column) for column in there.T}) > 1
    assert (there.any(axis=0)).all()
    for t in range(some.rounds):
        all_of_them = held(everybody, t)
        assert all(np.array_equal(positions, all_of_them[client]) for client, positions in held(some, t).items())
    assert some.session_of_round.tolist() == np.repeat(np.arange(4), 3).tolist()


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"algorithm": "scaffold"}, "algorithm scaffold"),
        ({"local": {"momentum": 0.9, "momentum_scope": "client"}}, r"local\.momentum_scope = client"),
    ],
)
def test_clients_that_do_not_remember_are_refused_memories(values, what):
    data, scenario = vectors(count=400), {"name": "evolving", **SMALL, "drift": "fresh"}
    chosen = run_settings(scenario=scenario, partition="dirichlet_prior", **values)
    with pytest.raises(SettingsError, match=f"{what} requires stateful clients"):
        federation(chosen, build_timeline(chosen, data), data)


@pytest.mark.parametrize(
    ("chosen", "used", "equal", "different"),
    [
        ({"drift": "visits"}, None, ("dirichlet_prior", 0.5), ("dirichlet_class", 0.5)),
        ({"drift": "pointer", "beta": 0.5}, None, ("dirichlet_prior", 0.5), ("dirichlet_prior", 2.0)),
        ({"drift": "fresh"}, ("alpha",), ("dirichlet_class", 0.5), ("dirichlet_prior", 2.0)),
        ({"drift": "fresh", "beta": 0.5}, (), ("dirichlet_class", 2.0), None),
    ],
)
def test_what_it_says_of_the_partition_is_what_it_uses(chosen, used, equal, different):
    def digest(name, alpha):
        return timeline("evolving", world(partition=name, alpha=alpha), **SMALL, **chosen).digest

    assert plugin("scenarios", "evolving", **SMALL, **chosen).partition_settings() == used
    assert digest(*equal) == digest("dirichlet_prior", 0.5)
    if different is not None:
        assert digest(*different) != digest("dirichlet_prior", 0.5)


def test_a_partition_without_effect_is_logged_before_the_run():
    data = vectors()
    line = "partition iid has no effect: with these settings, scenario evolving assigns"
    for drift, wanted in (("fresh", [line]), ("visits", [])):
        scenario = {"name": "evolving", **SMALL, "subsets": 2, "beta": 0.5, "drift": drift}
        settings = run_settings(scenario=scenario, partition="iid")
        logged = advice(federation(settings, build_timeline(settings, data), data).parts)
        assert [text[: len(line)] for text in logged if "partition" in text] == wanted
