"""Times as tables write them, the clock they are read by, and the formats that fit them."""

import datetime

import pandas as pd
import pytest

from fedtide.core.errors import SettingsError
from fedtide.world.adapters.columns import Column
from fedtide.world.adapters.dates import formats_of, joined, part_of, times

MONTHS = [f"{month:02}/01/2024" for month in range(1, 13)]


def column(values, name="when"):
    return Column(pd.Series(values), name, lambda row: f"row {row + 1}")


@pytest.mark.parametrize(
    ("value", "date"),
    [
        ("2013Q2", "2013-04-01"),
        ("2013-W01", "2012-12-31"),
        ("2013w53-3", None),
        ("2013-W02-3", "2013-01-09"),
        (2013, "2013-01-01"),
        (201312, "2013-12-01"),
        ("20131224", "2013-12-24"),
        (20131224.0, "2013-12-24"),
        (1_700_000_000, "2023-11-14 22:13:20"),
        (1_700_000_000.75, "2023-11-14 22:13:20"),
        (2013122408, "2013-12-24 08:00"),
        ("20131224083015", "2013-12-24 08:30:15"),
        (2.5, None),
        ("09:00", None),
    ],
)
def test_a_time_without_a_format(value, date):
    if date is None:
        with pytest.raises(SettingsError):
            times(column([value]))
    else:
        found, unit = times(column([value, value]))
        assert (found.tolist(), unit) == ([pd.Timestamp(date).timestamp()] * 2, "s")


BERLIN = [
    "2024-03-31T01:30:00+01:00",
    "2024-03-31T03:30:00+02:00",
    "2024-10-27T02:30:00+02:00",
    "2024-10-27T02:30:00+01:00",
]
AHEAD = datetime.timezone(datetime.timedelta(hours=11))


@pytest.mark.parametrize(
    ("values", "given", "clock"),
    [
        (["2024-02-01T08:15:00+11:00", "2024-02-01T00:30:00+11:00"], {}, ["2024-02-01 08:15", "2024-02-01 00:30"]),
        (["20240201T081500+1100"], {}, ["2024-02-01 08:15"]),
        (["2024-02-01 08:15:00-05"], {}, ["2024-02-01 08:15"]),
        (["01/Feb/2024:08:15:00 +0530"], {"date_format": "%d/%b/%Y:%H:%M:%S %z"}, ["2024-02-01 08:15"]),
        (["Thu 08-15 2024-05"], {"date_format": "%a %H-%M %Y-%m"}, ["2024-05-01 08:15"]),
        ([datetime.datetime(2024, 2, 1, 8, 15, tzinfo=AHEAD)], {}, ["2024-02-01 08:15"]),
        (pd.DatetimeIndex(BERLIN[:1]).tz_convert("Asia/Tokyo"), {}, ["2024-03-31 09:30"]),
        (["2024-02-01T08:15:00Z"], {"timezone": "Australia/Sydney"}, ["2024-02-01 19:15"]),
        ([1_706_775_300, 1_720_000_000], {"timezone": "Europe/Berlin"}, ["2024-02-01 09:15", "2024-07-03 11:46:40"]),
        (BERLIN, {"timezone": "Europe/Berlin"}, [text[:16].replace("T", " ") for text in BERLIN]),
        (BERLIN[:2], {"timezone": "UTC"}, ["2024-03-31 00:30", "2024-03-31 01:30"]),
    ],
)
def test_times_are_those_of_the_clock_on_the_wall(values, given, clock):
    found, _ = times(column(values), **given)
    assert found.tolist() == [pd.Timestamp(text).timestamp() for text in clock]


@pytest.mark.parametrize(
    ("values", "given", "message"),
    [
        (
            BERLIN,
            {},
            r"row 2: when is '2024-03-31T03.*', expected the offset \+01:00 of .* set data\.timezone, such as",
        ),
        ([*BERLIN, "2024-01-01"], {}, "row 1: when is .*, expected times that all have a time zone, or none"),
        (["2024-01-01"], {"timezone": "UTC"}, r"a time with an offset, such as \+01:00, for data\.timezone"),
        ([20240101, 20240102], {"timezone": "UTC"}, r"a time with an offset"),
        ([1, 2], {"unit": "step", "timezone": "UTC"}, r"data\.timezone = 'UTC' requires times in seconds"),
    ],
)
def test_times_without_a_common_clock_are_one_line(values, given, message):
    with pytest.raises(SettingsError, match=message):
        times(column(values), key="data.", **given)


def test_integers_in_another_unit_are_no_dates_and_among_dates_all_have_to_be():
    assert times(column(["2013", "2014"]), "step")[0].tolist() == [2013, 2014]
    with pytest.raises(SettingsError, match="row 3: when is '20130230'"):
        times(column([20130131, 20130201, 20130230]))


@pytest.mark.parametrize(
    ("values", "formats"),
    [
        (MONTHS, ["%m/%d/%Y", "%d/%m/%Y"]),
        ([f"01/{month:02}/2024" for month in range(1, 13)], ["%d/%m/%Y", "%m/%d/%Y"]),
        ([f"{month}/{day}/2024" for month in (1, 2, 3) for day in (2, 5, 9)], ["%m/%d/%Y", "%d/%m/%Y"]),  # in order
        ([f"{month}/{day}/2024" for month in (3, 2, 1) for day in (9, 5, 2)], ["%m/%d/%Y", "%d/%m/%Y"]),  # newest first
        (["1/13/2024 8:26", "2/1/2024 18:26"], ["%m/%d/%Y %H:%M"]),
        (["1/13/24 8:26:00 AM", None], ["%m/%d/%y %I:%M:%S %p"]),
        (["31.12.23 08:15"], ["%d.%m.%y %H:%M"]),
        (["Jan 2013", "May 2013"], ["%b %Y"]),
        (["January 5, 2013"], ["%B %d, %Y"]),
        (["2013Q1", "2013Q2", "Total"], [None]),
        (["2024-01-31", "soon", "later"], []),
        (["09:00", "2/3", "1.5"], []),
        ([], []),
    ],
)
def test_formats_that_fit_most_texts(values, formats):
    assert formats_of(pd.Series(values, dtype=object)) == formats


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("Year", (0, "")),
        ("arrival_date_month", (1, "arrival_date")),
        ("DayofMonth", (2, "")),
        ("arrival_date_day_of_month", (2, "arrival_date")),
        ("hr", (3, "")),
        ("DayOfWeek", None),
        ("week_day", None),
    ],
)
def test_parts_by_their_names(name, part):
    assert part_of(name) == part


def test_a_date_lacks_where_a_part_does():
    found, date_format = joined([column([1.0, None], "day"), column([2, 3], "month"), column(["2013", "2014"], "year")])
    assert (found.name, date_format, found.values.isna().tolist()) == ("day, month, year", "%d %m %Y", [False, True])
    assert found.values[0] == "1 2 2013"


@pytest.mark.parametrize(
    "names", [("month", "day"), ("year", "day"), ("date", "day"), ("date", "clock", "hour"), ("hr", "hour")]
)
def test_parts_without_a_gap_make_a_date(names):
    with pytest.raises(SettingsError, match="expected columns named year, month"):
        joined([column(["1"], name) for name in names])
    assert joined([column(["1"], name) for name in names], "%d %m")[1] == "%d %m"
