"""Samples held out: by client and period, and by class for validation."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.world.splits.holdout import hold_out, stratified_split

sizes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 99)), min_size=1, max_size=60)


def split(samples, share=0.3, by="random", seed=0):
    groups, periods, times = (np.array(column, dtype=np.int64) for column in zip(*samples, strict=True))
    return hold_out(np.arange(len(samples)), groups, periods, times if by == "time" else None, share, seed, "test")


@given(sizes, st.floats(0, 0.95), st.sampled_from(["random", "time"]))
def test_every_group_and_period_gives_its_share(samples, share, by):
    kept, held = split(samples, share, by)
    assert np.array_equal(np.sort(np.concatenate([kept, held])), np.arange(len(samples)))
    where = np.array(samples)[:, :2]
    for stratum in np.unique(where, axis=0):
        members = np.flatnonzero((where == stratum).all(1))
        assert abs(np.isin(members, held).sum() - share * len(members)) < 1


@given(sizes)
def test_by_time_the_last_samples_are_held_out(samples):
    kept, held = split(samples, 0.5, "time")
    for group, period, time in (samples[place] for place in kept):
        assert all(samples[other][2] >= time for other in held if samples[other][:2] == (group, period))


@given(sizes, st.integers(0, 3))
def test_later_periods_change_nothing(samples, period):
    earlier = [place for place, sample in enumerate(samples) if sample[1] <= period]
    if not earlier:
        return
    _, held = split(samples)
    _, alone = split([samples[place] for place in earlier])
    assert [place for place in held if place in earlier] == [earlier[place] for place in alone]


def test_the_expected_number_is_the_share():
    samples = [(group, 0, 0) for group in range(2000)]
    _, held = split(samples, 0.3)
    assert abs(len(held) - 600) < 4 * np.sqrt(2000 * 0.3 * 0.7)


def labels_of(counts):
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.floats(0, 0.99), st.integers(0, 2**31))
@settings(max_examples=100, deadline=None)
def test_split_is_a_stratified_partition(counts, fraction, seed):
    """Of the given positions alone."""
    labels = labels_of(counts)
    positions = np.flatnonzero(np.random.default_rng(seed).random(len(labels)) < 0.8)
    train, validation = stratified_split(labels, positions, fraction, seed)
    assert np.array_equal(np.sort(np.concatenate([train, validation])), positions)
    assert (np.diff(train) > 0).all()
    assert (np.diff(validation) > 0).all()
    given_, held = (np.bincount(labels[part], minlength=len(counts)) for part in (positions, validation))
    for count, taken in zip(given_, held, strict=True):
        assert abs(taken - fraction * count) < 1 or count <= 1
        assert taken == 0 if count <= 1 else taken < count


@given(st.integers(2, 50), st.integers(1, 10), st.floats(0, 0.5))
@settings(max_examples=50, deadline=None)
def test_total_is_the_rounded_share(each, classes, fraction):
    labels = labels_of([each] * classes)
    _, validation = stratified_split(labels, np.arange(len(labels)), fraction, 0)
    assert len(validation) == int(np.floor(fraction * each * classes + 0.5))


def test_largest_remainders_are_rounded_up_and_ties_go_to_the_lower_class():
    labels = labels_of([13, 18, 12, 12])  # 1.3, 1.8, 1.2, 1.2 of 5.5, rounded to 6
    _, validation = stratified_split(labels, np.arange(len(labels)), 0.1, 5)
    assert np.bincount(labels[validation]).tolist() == [2, 2, 1, 1]
    labels = labels_of([12, 12, 12, 12])  # 1.2 each of 4.8, rounded to 5
    _, validation = stratified_split(labels, np.arange(len(labels)), 0.1, 5)
    assert np.bincount(labels[validation]).tolist() == [2, 1, 1, 1]


def test_single_samples_do_not_push_other_classes_up():
    labels = labels_of([1, 1, 1, 1, 1, 14])  # 1.4 of the last class; the five singles would make it 1.9
    _, validation = stratified_split(labels, np.arange(len(labels)), 0.1, 0)
    assert np.bincount(labels[validation]).tolist() == [0, 0, 0, 0, 0, 1]


def test_seed_decides_the_draw():
    draws = [stratified_split(labels_of([50, 50]), np.arange(100), 0.2, seed)[1].tolist() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
