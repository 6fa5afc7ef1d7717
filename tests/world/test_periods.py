"""Periods of time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.world.presence.calendar import periods

times = st.lists(st.integers(-(2**33), 2**33), min_size=1, max_size=30)
years = st.lists(st.integers(-(2**28), 2**28), min_size=1, max_size=30)  # days are the same in all of them


def seconds(*dates):
    return np.array(dates, dtype="datetime64[s]").astype(np.int64)


def test_months_begin_on_the_first():
    made = periods(seconds("2012-12-31T23:59:59", "2013-03-01T00:00:00"), "month")
    assert made.names == ("2012-12", "2013-01", "2013-02", "2013-03")
    at = seconds("2012-12-31T23:59:59", "2013-01-01", "2013-02-28T23:59:59", "2013-03-01")
    assert made.of(at).tolist() == [0, 1, 2, 3]


def test_years_begin_in_january():
    made = periods(seconds("1899-12-31T23:59:59", "1902-06-01"), "year")
    assert made.names == ("1899", "1900", "1901", "1902")
    assert made.of(seconds("1899-12-31T23:59:59", "1900-01-01", "1902-12-31")).tolist() == [0, 1, 3]
    assert made.part(seconds("1901-12-31", "1902-01-01"), 4).tolist() == [3, 0]


def test_weeks_begin_on_monday():
    made = periods(seconds("2013-01-06T12:00:00", "2013-01-07"), "week")  # a Sunday and a Monday
    assert made.names == ("2012-12-31", "2013-01-07")
    assert made.of(seconds("2013-01-06T23:59:59", "2013-01-07")).tolist() == [0, 1]


@given(years)
def test_days(found):
    at = np.array(found)
    made = periods(at, "day")
    assert np.array_equal(made.of(at), at // 86400 - at.min() // 86400)


@given(times, st.integers(2**28, 2**33))
def test_spans_of_a_length_begin_with_the_first_sample(found, length):
    at = np.array(found)
    assert np.array_equal(periods(at, length).of(at), (at - at.min()) // length)


@given(st.lists(st.integers(0, 10**6), min_size=12, max_size=60, unique=True), st.integers(1, 12))
def test_equal_periods_have_equal_counts(found, count):
    at = np.array(found)
    sizes = np.bincount(periods(at, "equal", count).of(at))
    assert len(sizes) == count
    assert sizes.max() - sizes.min() <= 1


@given(years)
def test_weekends_are_saturdays_and_sundays(found):
    at = np.array(found)
    made = periods(at, "weekpart")
    weekday = at.astype("datetime64[s]").astype("datetime64[D]").astype(np.int64) - 4  # 5 January 1970 was a Monday
    kinds = np.array(made.kinds)[made.of(at)]
    assert kinds.tolist() == ["weekend" if day % 7 >= 5 else "weekdays" for day in weekday]
    assert all(one != other for one, other in zip(made.kinds, made.kinds[1:], strict=False))
    weeks = periods(at, "week")
    same = made.of(at)[:, None] == made.of(at)
    assert (same == ((kinds[:, None] == kinds) & (weeks.of(at)[:, None] == weeks.of(at)))).all()


def test_parts_of_days_begin_at_hours():
    at = seconds(
        "2013-01-01T03:59:59", "2013-01-01T04:00", "2013-01-01T11:59:59", "2013-01-01T23:00", "2013-01-02T12:00"
    )
    made = periods(at, "daypart", hours=(4, 12, 17))
    assert made.kinds == ("17-04", "04-12", "12-17", "17-04", "04-12", "12-17")
    assert made.names[:2] == ("2012-12-31 17-04", "2013-01-01 04-12")
    assert made.of(at).tolist() == [0, 1, 1, 3, 5]
    assert periods(at, "daypart").names[0] == "2013-01-01 00-06"
    assert periods(at, "daypart").kinds[-2:] == ("06-12", "12-18")
    assert not periods(at, "day").kinds


@pytest.mark.parametrize("period", ["month", "week", "weekpart", "daypart", "equal", 2**31])
@given(st.data(), st.integers(1, 40))
def test_parts_of_a_period_are_equally_long(period, data, parts):
    at = np.array(data.draw(years if str(period).startswith("day") else times))
    made = periods(at, period, 3)
    edges = np.array([made.start, *made.bounds, made.end])
    first, end = edges[made.of(at)], edges[made.of(at) + 1]
    assert ((first <= at) & (at < end)).all()
    assert made.part(at, parts).tolist() == ((at - first) * parts // (end - first)).tolist()
    assert made.part(edges[:-1], parts).tolist() == [0] * (len(edges) - 1)
    assert made.part(edges[1:] - 1, 1).tolist() == [0] * (len(edges) - 1)
