"""The moves all rules share: their exact laws."""

from itertools import permutations

import numpy as np
import pytest

from fedtide.world.partitions import base as dealing

DRAWS = 3000


def dealt_classes(prior, counts, gives_up, fallback, rng):
    """Classes one client is dealt, in order."""
    ends = np.cumsum(counts)
    pools = [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)]
    slots = np.zeros(sum(counts), dtype=np.int64)
    (positions,) = dealing.fill_slots(slots, np.array([prior]), pools, rng, gives_up, fallback)
    return tuple(np.searchsorted(ends, positions, side="right").tolist())


def never(mass):
    return (mass == 0).astype(float)


def uniform(left):
    return (left > 0).astype(float)


@pytest.mark.slow
def test_a_slot_draws_from_the_prior_of_the_classes_that_are_left():
    """Without giving up, the order is that of successive sampling: p_a * p_b / (1 - p_a)."""
    prior, rng = (0.5, 0.3, 0.2), np.random.default_rng(0)
    seen = [dealt_classes(prior, (1, 1, 1), never, uniform, rng) for _ in range(DRAWS)]
    for order in permutations(range(3)):
        expected = prior[order[0]] * prior[order[1]] / (1 - prior[order[0]])
        tolerance = 4 * np.sqrt(expected * (1 - expected) / DRAWS)
        assert abs(seen.count(order) / DRAWS - expected) < tolerance


@pytest.mark.slow
def test_a_client_gives_up_with_the_probability_that_all_tries_fail():
    """After class 0 a mass of 0.1 is left; class 2, unwanted, is met only by giving up, and then half of the times."""
    rng, tries = np.random.default_rng(1), 14
    seen = [
        dealt_classes((0.9, 0.1, 0.0), (1, 1, 1), lambda mass: (1 - mass) ** tries, uniform, rng) for _ in range(DRAWS)
    ]
    second = [order[1] for order in seen if order[0] == 0]
    expected = 0.9**tries / 2
    assert abs(second.count(2) / len(second) - expected) < 4 * np.sqrt(expected / len(second))


def test_the_fallback_sees_what_is_left():
    """A client that wants only class 0 takes the others in the order the fallback prefers."""

    def most_left(left):
        return (left == left.max()).astype(float)

    order = dealt_classes((1.0, 0.0, 0.0), (2, 1, 3), never, most_left, np.random.default_rng(0))
    assert order[:4] == (0, 0, 2, 2)


def test_hand_out_cuts_contiguous_parts_larger_first():
    held = dealing.hand_out([(np.arange(7), [2, 0, 2]), (np.arange(10, 12), [0, 1])], 4)
    assert [part.tolist() for part in held] == [[3, 4, 10], [11], [0, 1, 2, 5, 6], []]
