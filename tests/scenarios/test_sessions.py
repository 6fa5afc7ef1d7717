"""Sessions: who is present, which labels groups have and are evaluated, and that returning devices are the same."""

from fractions import Fraction
from itertools import pairwise
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.world.scenarios._presence import markov
from fedtide.world.scenarios.sessions import label_groups, parse_overlap
from worlds import timeline, world


def present(made, session):
    first = int(np.flatnonzero(made.session_of_round == session)[0])
    return made.at(first).clients.tolist()


def held(made, labels, session):
    """Union of the labels held by a session's devices."""
    return {int(label) for client in present(made, session) for label in labels[made.shards[client]]}


def counted(made, session):
    first = int(np.flatnonzero(made.session_of_round == session)[0])
    return set(np.flatnonzero(made.labels_at(first)).tolist())


def test_alternate_exchanges_the_whole_population():
    made = timeline("sessions", world(), num_devices=4, num_sessions=5, rounds_per_session=3)
    groups = [list(range(4)), list(range(4, 8))]
    assert [present(made, session) for session in range(5)] == [groups[session % 2] for session in range(5)]
    assert len(made.assignments) == 2  # a returning group has the same clients with the same shards
    assert len(made.label_views) == 2


def test_pilot_sessions_have_their_own_length():
    made = timeline("sessions", world(), num_sessions=4, rounds_per_session=3, pilot_sessions=2, rounds_pilot=5)
    assert made.session_of_round.tolist() == [0] * 5 + [1] * 5 + [2] * 3 + [3] * 3
    assert [made.session_span(round_) for round_ in (0, 9, 10, 15)] == [(0, 5), (5, 5), (10, 3), (13, 3)]


def test_without_overlap_no_label_of_a_session_counted_in_the_previous_one():
    """So a model that predicts only labels of the other group scores zero when the session begins."""
    given_ = world(partition="dirichlet_class")
    made = timeline("sessions", given_, num_devices=4, num_sessions=3)
    assert counted(made, 0) == set(range(5))
    assert counted(made, 1) == set(range(5, 10))
    dealt = np.concatenate(made.shards)
    assert np.array_equal(np.sort(dealt), given_.train)


@given(overlap=st.sampled_from(["0", "0.2", "0.5", "0.8"]), groups=st.integers(2, 4), seed=st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_exactly_the_labels_count_that_are_held(overlap, groups, seed):
    given_ = world(partition="dirichlet_session", seed=seed, alpha=0.1)
    made = timeline(
        "sessions",
        given_,
        pattern="cycle",
        groups=groups,
        num_devices=3,
        num_sessions=groups + 1,
        label_overlap=overlap,
    )
    for session in range(groups + 1):
        assert counted(made, session) == held(made, given_.labels, session)
        assert counted(made, session) == set(made.notes["labels_of_group"][session % groups])


def test_a_shared_label_is_held_once_in_each_group():
    given_ = world(partition="dirichlet_session")
    made = timeline("sessions", given_, num_devices=5, label_overlap="0.2")
    owners = np.bincount(np.concatenate(made.shards), minlength=len(given_.labels))
    expected = np.select([given_.labels == 4, given_.labels == 9], [2, 0], 1)
    expected[given_.validation] = 0
    assert np.array_equal(owners, expected)


@pytest.mark.parametrize(
    ("partition", "first", "second"),
    [("label_halves", range(5), range(5, 10)), ("partial_overlap", range(6), range(4, 10))],
)
def test_population_rules_deal_to_all_groups_at_once(partition, first, second):
    made = timeline("sessions", world(partition=partition), num_devices=3, num_sessions=2)
    assert counted(made, 0) == set(first)
    assert counted(made, 1) == set(second)


def test_explicit_lists():
    lists = ((5, 0), (1, 2, 3), (0,))
    made = timeline("sessions", world(), pattern="explicit", num_devices=3, num_sessions=3, explicit=lists)
    assert [present(made, session) for session in range(3)] == [[0, 5], [1, 2, 3], [0]]
    assert made.notes["devices_per_session"] == [2, 3, 1]


@given(
    leave=st.sampled_from([0.0, 0.3, 1.0]),
    arrivals=st.integers(0, 6),
    least=st.integers(1, 5),
    seed=st.integers(0, 20),
)
@settings(max_examples=50, deadline=None)
def test_markov_moves_devices_with_its_probabilities(leave, arrivals, least, seed):
    pool, before = 12, np.arange(5)
    sets = list(markov(before, pool, 8, leave, arrivals, least, seed))
    assert np.array_equal(sets[0], before)
    for before, after in pairwise(sets):
        stayed, arrived = np.intersect1d(before, after), np.setdiff1d(after, before)
        assert (np.diff(after) > 0).all()
        assert len(stayed) >= least
        assert len(arrived) == min(arrivals, pool - len(before))
        if leave == 0:
            assert len(stayed) == len(before)
        if leave == 1:
            assert stayed.tolist() == before[:least].tolist()  # the lowest ids are kept back


def test_markov_is_a_function_of_the_seed():
    runs = [[ids.tolist() for ids in markov(np.arange(5), 20, 6, 0.5, 3, 1, seed)] for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_markov_departures_have_the_probability_asked_for():
    sets = list(markov(np.arange(2000), 4000, 6, 0.3, 600, 1, 0))
    stayed = [len(np.intersect1d(before, after)) / len(before) for before, after in pairwise(sets)]
    assert np.mean(stayed) == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize(
    ("chosen", "returning"),
    [
        ({}, [4, 5, 6, 7]),
        ({"pilot_sessions": 3, "num_sessions": 9}, [6, 7, 8, 9]),
        ({"pattern": "cycle", "groups": 3}, [5, 6, 7]),  # session 4 has only been seen in the pilot
        ({"pattern": "explicit", "explicit": ((0,), (0, 1), (2, 0), (0, 1), (0,), (1, 2), (0, 2))}, [4, 7]),
        ({"pattern": "markov", "p_leave": 0.0, "arrivals": 0}, [3, 4, 5, 6, 7]),
        ({"pattern": "markov", "p_leave": 0.5}, []),
    ],
)
def test_sessions_that_return_to_devices_with_a_stored_model(chosen, returning):
    made = timeline("sessions", world(), num_devices=5, **chosen)
    assert [session + 1 for session in range(made.sessions) if made.returning(session)] == returning
    later = range(made.pilot + 1, made.sessions + 1)
    assert made.transition_sessions == (returning or list(later))


def test_a_session_without_any_data_is_refused():
    given_ = world(each=6, partition="dirichlet_class", alpha=1e-3)
    made = timeline("sessions", given_, num_devices=10, num_sessions=1)
    idle = next(client for client in range(10) if len(made.shards[client]) == 0)
    with pytest.raises(SettingsError, match=r"^no client with data is present in round 0 "):
        timeline("sessions", given_, pattern="explicit", num_sessions=1, explicit=((idle,),))


HUNDREDTHS = st.integers(0, 99).map(lambda number: f"0.{number:02d}")


@pytest.mark.parametrize(
    ("classes", "overlap", "first", "second"),
    [
        (10, "0.0", (0, 4), (5, 9)),
        (10, "0.2", (0, 4), (4, 8)),
        (10, "0.8", (0, 7), (2, 9)),
        (4, "0.2", (0, 1), (2, 3)),
        (4, "0.8", (0, 2), (1, 3)),
        (200, "0.0", (0, 99), (100, 199)),
        (200, "0.2", (0, 110), (89, 199)),
        (200, "0.8", (0, 165), (34, 199)),
    ],
)
def test_published_splits(classes, overlap, first, second):
    for value in (overlap, float(overlap)):
        groups = label_groups(classes, 2, parse_overlap(value))
        assert [(group[0], group[-1]) for group in groups] == [first, second]


@given(classes=st.integers(2, 250), overlap=HUNDREDTHS)
@settings(max_examples=150, deadline=None)
def test_two_groups_follow_the_published_rule(classes, overlap):
    share = Fraction(overlap)
    size = floor(classes / (2 - share))
    shared = floor(size * share)
    if shared == 0:
        expected = [range(classes // 2), range(classes // 2, classes)]
    else:
        expected = [range(size), range(size - shared, 2 * size - shared)]
    assert label_groups(classes, 2, share) == expected


@given(classes=st.integers(1, 120), groups=st.integers(1, 8), overlap=HUNDREDTHS)
@settings(max_examples=150, deadline=None)
def test_any_number_of_groups(classes, groups, overlap):
    """Equal shared parts between neighbors, all labels in range, and without overlap a partition of them."""
    if groups > classes:
        with pytest.raises(SettingsError, match=f"^groups = {groups} .*largest feasible value is {classes}$"):
            label_groups(classes, groups, Fraction(overlap))
        return
    found = label_groups(classes, groups, Fraction(overlap))
    assert found[0][0] == 0
    assert found[-1][-1] <= classes - 1
    shared = {len(set(left) & set(right)) for left, right in pairwise(found)}
    assert len(shared) <= 1
    if shared == {0}:
        assert [label for group in found for label in group] == list(range(classes))
        assert max(map(len, found)) - min(map(len, found)) <= 1
    elif shared:
        assert len({len(group) for group in found}) == 1
        assert shared == {floor(len(found[0]) * Fraction(overlap))}


def test_decimals_are_exact():
    """0.29 * 100 is 28.999... in floating point; as a fraction it is 29."""
    assert parse_overlap(0.29) == parse_overlap("0.29") == Fraction(29, 100)
    assert floor(parse_overlap(0.29) * 100) == 29
