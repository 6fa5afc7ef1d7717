"""Samples held out by client and period."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedtide.world.splits.holdout import hold_out

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
