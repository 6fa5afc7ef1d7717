"""Who is drawn: a function of seed, round and id, with the laws the rules promise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core import plugins
from fedtide.world.participation.base import coins, smallest
from support import steady

NAMES = plugins.names("participation")
CLIENTS, ROUNDS = 61, 30
TURNS = [np.arange(round_ % 3, CLIENTS, 3) for round_ in range(ROUNDS)]
WORLD, LABELS = replace(steady([3] * CLIENTS, ROUNDS), active=TURNS), np.arange(3 * CLIENTS) % 3
PRESENT = st.sets(st.integers(0, 60), min_size=1, max_size=25).map(lambda ids: np.array(sorted(ids), dtype=np.int64))


def rule(name, **chosen):
    """The rule in a world where everybody is present with equal data of every class."""
    cls = plugins.load("participation", name)
    made = cls(cls.Settings(**chosen))
    made.bind(WORLD, LABELS, 0)
    return made


@pytest.mark.parametrize("name", NAMES)
@given(present=PRESENT, round_=st.integers(0, ROUNDS - 1), seed=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_a_cohort_is_ascending_not_empty_and_reproducible(name, present, round_, seed):
    cohort = rule(name).draw(present, round_, seed)
    assert cohort.dtype == np.int64
    assert len(cohort) >= 1
    assert (np.diff(cohort) > 0).all()
    assert cohort[0] >= 0
    assert cohort[-1] < len(present)
    assert np.array_equal(cohort, rule(name).draw(present, round_, seed))


@pytest.mark.parametrize("name", ["fixed", "bernoulli"])
def test_rounds_and_seeds_draw_differently(name):
    present = np.arange(60)
    cohorts = {tuple(rule(name).draw(present, round_, seed)) for round_ in range(4) for seed in range(4)}
    assert len(cohorts) == 16


def test_active_clients_are_those_with_samples_of_the_round():
    chosen, some = rule("active"), rule("active", count=4)
    everybody = np.arange(CLIENTS)
    for round_ in range(6):
        assert np.array_equal(chosen.draw(everybody, round_, 0), TURNS[round_])
        assert set(some.draw(everybody, round_, 0)) < set(TURNS[round_])
        assert len(some.draw(everybody, round_, 0)) == 4
    assert chosen.stationary() == pytest.approx(1 / 3, abs=0.01)
    assert chosen.participation_fraction(CLIENTS) == pytest.approx(1 / 3, abs=0.01)
    assert len(chosen.draw(np.array([0, 3]), 1, 0)) == 1  # none is active: one takes part


@given(present=PRESENT, fraction=st.floats(0.01, 1.0))
@settings(max_examples=50, deadline=None)
def test_fixed_size(present, fraction):
    chosen = rule("fixed", fraction=fraction)
    cohort = chosen.draw(present, 3, 0)
    assert len(cohort) == max(1, round(fraction * len(present)))
    assert chosen.participation_fraction(len(present)) == len(cohort) / len(present)
    assert len(rule("fixed", count=7).draw(present, 3, 0)) == min(7, len(present))


def test_fixed_is_uniform_over_subsets():
    """Two of four clients: each of the six pairs has probability 1/6."""
    pairs = [tuple(rule("fixed", count=2).draw(np.arange(4), round_, 0)) for round_ in range(3000)]
    counts = [pairs.count(pair) for pair in sorted(set(pairs))]
    assert len(counts) == 6
    assert all(abs(count - 500) < 4 * np.sqrt(3000 * 5 / 36) for count in counts)


def test_bernoulli_uses_the_first_attempt_with_a_client():
    probability, present, redrawn = 0.05, np.arange(5), 0
    for round_ in range(30):
        attempt = 0
        while (coins(present, round_, 0, attempt) >= probability).all():
            attempt += 1
        redrawn += attempt > 0
        expected = np.flatnonzero(coins(present, round_, 0, attempt) < probability)
        assert np.array_equal(rule("bernoulli", probability=probability).draw(present, round_, 0), expected)
    assert redrawn > 0


@pytest.mark.parametrize(
    ("name", "chosen", "expected"),
    [("all", {}, 1.0), ("bernoulli", {"probability": 0.3}, 0.3), ("fixed", {"count": 5}, 0.25)],
)
def test_participation_fraction(name, chosen, expected):
    assert rule(name, **chosen).participation_fraction(20) == expected


@given(seed=st.integers(0, 1000), clients=st.integers(1, 3000), count=st.integers(1, 400), coarse=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_smallest_numbers_are_those_that_sorting_all_gives(seed, clients, count, coarse):
    """Also with equal numbers, of which the first count, and with numbers that are not spread as they should be."""
    uniform = np.random.default_rng(seed).random(clients)
    uniform = np.round(uniform, 1) * 0.9 if coarse else uniform
    expected = np.sort(np.argsort(uniform, kind="stable")[: min(count, clients)])
    assert np.array_equal(smallest(uniform, min(count, clients)), expected)
    assert np.array_equal(smallest(1 - uniform / 1e6, min(count, clients)),
                          np.sort(np.argsort(1 - uniform / 1e6, kind="stable")[: min(count, clients)]))  # fmt: skip


PUBLISHED = [
    (100, 0.15, 0, [14, 15, 16, 24, 26, 34, 43, 47, 53, 61, 63, 67, 69, 75, 77, 79, 82, 87, 92, 97, 99]),
    (100, 0.15, 2, [1, 12, 19, 21, 23, 24, 27, 51, 55, 57, 67, 77, 81, 89, 91]),
    (100, 0.10, 0, [14, 15, 16, 34, 43, 67, 69, 75, 82, 87, 97, 99]),
    (100, 0.10, 1, [2, 5, 14, 26, 27, 30, 38, 50, 55, 64, 98]),
    (500, 0.02, 0, [34, 99, 126, 166, 173, 262, 283, 309, 398, 410, 417]),
    (500, 0.02, 2, [77, 126, 188, 203, 298, 325, 356, 397, 464]),
]


@pytest.mark.parametrize(("clients", "p", "t", "cohort"), PUBLISHED)
def test_cohorts_of_the_released_code(clients, p, t, cohort):
    assert rule("bernoulli_reference", probability=p).draw(np.arange(clients), t, 0).tolist() == cohort


def test_an_empty_draw_of_the_released_code_takes_the_next_seed():
    """Of two clients at 5 %, the first seed from t on that lets somebody join decides."""
    for t in range(20):
        seed = next(s for s in range(t, 1000) if (np.random.RandomState(s).uniform(size=2) <= 0.05).any())
        expected = np.flatnonzero(np.random.RandomState(seed).uniform(size=2) <= 0.05)
        assert np.array_equal(rule("bernoulli_reference", probability=0.05).draw(np.arange(2), t, 0), expected)
