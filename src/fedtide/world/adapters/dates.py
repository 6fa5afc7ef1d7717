"""Columns of times: integers in a unit, dates as ISO 8601 or in a format that is given, and dates in several columns."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from fedtide.core.array_types import Bools, Ints
from fedtide.core.errors import SettingsError
from fedtide.world.adapters.columns import Column, integers
from fedtide.world.adapters.zones import in_zone, wall_clock

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_YEARS = (1900, 2200)  # from the first one, before the second one; other times are those of another unit or format
_BOUNDS = tuple(int(np.datetime64(str(year), "s").astype(np.int64)) for year in _YEARS)
_ALLOWED = f"a date from {_YEARS[0]} to {_YEARS[1] - 1}"
_INTEGER = re.compile(r"[-+]?\d{1,19}(\.0*)?|\d{9,19}\.\d+")  # or a time as programs write it, with fractions
RECENT = 10**8
"""Seconds from 1970 to 1973: smaller numbers mostly count something else."""
_QUARTER = re.compile(r"(\d{4})[- ]?Q([1-4])|Q([1-4])[- /]?(\d{4})", re.IGNORECASE)
_PARTS = {
    "year": ("%Y", "year|yr|yyyy"),
    "month": ("%m", "month|mnth|mon|mm"),
    "day": ("%d", "day_?of_?month|day|dd|mday|dom"),
    "hour": ("%H", "hour|hr|hh"),
    "minute": ("%M", "minute|min"),
    "second": ("%S", "second|sec"),
}  # how each is read, and names of its column; the coarsest first
_DATES = (
    *("%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d/%m/%y", "%m/%d/%y", "%m/%Y", "%Y/%m", "%d/%b/%Y", "%d/%B/%Y", "%d/%b/%y"),
    *("%b/%Y", "%B/%Y", "%b/%y", "%Y/%b", "%Y/%B", "%b/%d,/%Y", "%B/%d,/%Y", "%b/%d/%Y", "%B/%d/%Y"),
)  # the slash stands for one of /.- and blanks, too
_CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%I:%M:%S%p", "%I %p", "%I%p")
_SAMPLE = 20  # texts that tell which formats are tried on all


def times(
    column: Column, unit: str = "s", date_format: str | None = None, key: str = "", timezone: str | None = None
) -> tuple[Ints, str]:
    """Times as int64 [n], and their unit: dates, and integers in ``s``, ``ms``, ``us`` or ``ns``, become seconds since 1970.

    They are those of a wall clock (:func:`fedtide.world.adapters.zones.wall_clock`); that of integers is UTC by default.

    Args:
        unit: of integers; those in any other unit stay as they are. Without a format, integers in ``s`` that are all such as
            2013, 201301 or 20130131 are dates.
        date_format: of dates that are not ISO's, as in :meth:`datetime.datetime.strptime`. Without it, quarters and weeks
            such as 2013Q1 and 2013-W05 are their first days.
        key: how settings begin in errors; without one there is no setting of the format and of the time zone.
        timezone: name of the time zone of the wall clock.

    Raises:
        SettingsError: a time is missing, neither integer nor date, outside of 1900 to 2199, which suggests another unit, or
            has another offset than others and there is no ``timezone``.
    """
    column.refuse(column.values.isna(), "a time")
    if date_format is None:
        if all(isinstance(text, str) and _INTEGER.fullmatch(text.strip()) for text in column.values.unique()):
            column = replace(column, values=pd.to_numeric(column.values))
        if unit in _PER_SECOND and pd.api.types.is_float_dtype(column.values) and (column.values >= RECENT).all():
            column = replace(column, values=np.floor(column.values))
        known = integers(column, "a time", "an integer or a date")
        if known is not None and unit not in _PER_SECOND:
            if timezone is not None:
                raise SettingsError(f"{key}timezone = {timezone!r} requires times in seconds, but the unit is {unit!r}")
            return known, unit
        if known is not None and (date_format := _format_of(known) if unit == "s" else None) is None:
            return _seconds(column, known, unit, key, timezone), "s"
    parsed = _parsed(column, key) if date_format is None else _formatted(column, date_format, key)
    seconds = wall_clock(column, parsed, timezone, key, date_format)
    column.refuse(_outside(seconds), _ALLOWED)
    return seconds, "s" if unit in _PER_SECOND else unit


def part_of(name: str) -> tuple[int, str] | None:
    """The part of a date that a column is named as, from 0, a year, to 5, a second, and what precedes it in the name."""
    for place, (_, words) in enumerate(_PARTS.values()):
        found = re.fullmatch(rf"(?:(.*?)_)?(?:{words})", snake_case(name))
        if found and not re.search("(of|week|working)$", before := found[1] or ""):
            return place, before
    return None


def snake_case(name: str) -> str:
    """A name in lower case with underscores between its words."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()).strip("_")


def joined(columns: Sequence[Column], date_format: str | None = None, key: str = "") -> tuple[Column, str | None]:
    """One column out of columns with parts of a date, joined by blanks, and its format; a date is missing where a part is.

    Without a format that is given, columns named as a part (``year``, ``yr``, ``arrival_month``) are read as it, in any
    order, and beside hours there may be a column of ISO dates.

    Raises:
        SettingsError: no format is given, and a year or another part is left out.
    """
    if len(columns) == 1:
        return columns[0], date_format
    name = ", ".join(column.name for column in columns)
    texts = [column.values.astype(str).str.replace(r"^(\d+)\.0*$", r"\1", regex=True) for column in columns]
    places = [part[0] if (part := part_of(column.name)) else None for column in columns]
    known = sorted(place for place in places if place is not None)
    if date_format is None and known:
        first = 3 if None in places else 0
        if places.count(None) > 1 or known != [*range(first, first + len(known))]:
            raise SettingsError(
                f"{key}time = [{name}]: expected columns named year, month, day, hour, minute, second, or a date and hour, "
                f"minute, second, none left out but the last; or set {key}date_format, such as '%d %m %Y'"
            )
        formats = ["%Y-%m-%d" if place is None else [*_PARTS.values()][place][0] for place in places]
        date_format = " ".join(formats)
    missing = np.any([column.values.isna() for column in columns], axis=0)
    dates = reduce(lambda before, text: before + " " + text, texts)
    return Column(dates.mask(missing), name, columns[0].place), date_format


def formats_of(values: pd.Series[Any]) -> list[str | None]:
    """Formats in which the most of these texts are dates, and at least half; ``None`` is ISO's.

    There are several where day, month and year may be exchanged, the likeliest first: the one with the same day of several
    months, or else the one with the dates in order, or else the one with the day before the month.
    """
    found = pd.Series(values.dropna().unique()).astype(str)
    parts = found.head(_SAMPLE).str.extract(r"^(.*?)(?:(,? )(\d\d?(?::\d\d.*| ?[AaPp][Mm])))?$")
    clocks = [known for known in _CLOCKS if are_dates(parts[2], known).any()]
    ends = ["", *(sign + clock for sign in parts[1].dropna().unique() for clock in clocks)]
    signs = [sign for sign in "/.- " if parts[0].str.contains(sign, regex=False).any()]
    days = [day.replace("/", sign) for day in _DATES for sign in signs]
    tries: list[str | None] = [None] if are_dates(found.head(_SAMPLE), None).any() else []
    tries += [day + end for day in days if are_dates(parts[0], day).any() for end in ends]
    read = {known: found[are_dates(found, known)] for known in tries}
    most = max(map(len, read.values()), default=0)
    best = [known for known in tries if len(read[known]) == most and 2 * most >= len(found) > 0]
    return (
        [None] if None in best else sorted(best, key=lambda known: _likely(dates_in(read[known], known)), reverse=True)
    )


def are_dates(values: pd.Series[Any], date_format: str | None) -> Bools:
    """Which values are dates of a format; ``None`` is ISO's."""
    return dates_in(values, date_format).notna().to_numpy(dtype=np.bool_)


def _likely(dates: pd.Series[pd.Timestamp]) -> tuple[bool, bool]:
    months = (dates.dt.year * 12 + dates.dt.month).nunique()
    return months > 2 and dates.dt.day.nunique() == 1, dates.is_monotonic_increasing or dates.is_monotonic_decreasing


def dates_in(values: pd.Series[Any], date_format: str | None) -> pd.Series[pd.Timestamp]:
    """Values as dates in UTC, without one where a value is none."""
    if date_format is not None:
        return pd.to_datetime(values.astype(str), utc=True, errors="coerce", format=date_format)
    dates = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
    if dates.isna().any():
        dates = pd.to_datetime(values.map(_first_day), utc=True, errors="coerce", format="ISO8601")
    return dates


def _first_day(value: Any) -> Any:
    """The first day of a quarter or of an ISO week; another value as it is."""
    text = str(value).strip()
    if found := _QUARTER.fullmatch(text):
        return f"{found[1] or found[4]}-{3 * int(found[2] or found[3]) - 2:02}"
    try:
        return datetime.date.fromisoformat(text.upper()).isoformat()
    except ValueError:
        return value


def _format_of(values: Ints) -> str | None:
    """The format of integers most of which are dates in it; as seconds they would all be of 1970."""
    for digits in range(0, 12, 2):
        date_format, unit = "%Y%m%d%H%M%S"[: 2 + digits], 10**digits
        within = (values >= _YEARS[0] * unit) & (values < _YEARS[1] * unit)
        if within.all() and 2 * are_dates(pd.Series(values), date_format).sum() > len(values):
            return date_format
    return None


def _outside(seconds: Ints) -> Bools:
    return (seconds < _BOUNDS[0]) | (seconds >= _BOUNDS[1])


def _seconds(column: Column, values: Ints, unit: str, key: str, timezone: str | None) -> Ints:
    seconds = values // _PER_SECOND[unit]
    outside = _outside(seconds)
    if outside.any():
        finer = [other for other, count in _PER_SECOND.items() if not _outside(values // count).any()]
        hint = f"; set {key}unit: {finer[0]}" if finer else ""
        column.refuse(outside, f"a time from {_YEARS[0]} to {_YEARS[1] - 1} in {unit}{hint}")
    if timezone is None:
        return seconds
    return in_zone(pd.Series(seconds.astype("datetime64[s]")).dt.tz_localize("UTC"), timezone)


def _parsed(column: Column, key: str) -> pd.Series[pd.Timestamp]:
    """ISO dates."""
    parsed = dates_in(column.values, None)
    if parsed.isna().any():
        fitting = formats_of(column.values)
        such = " or ".join(repr(known) for known in fitting or ["%d/%m/%Y"])
        hint = f"for other dates set {key}date_format, such as {such}"
        if None in fitting:
            hint = f"as most are; correct it, or empty the cell and set {key}unlabeled: drop"
        column.refuse(
            parsed.isna(), "an integer or a date such as 2013-01-31T18:00:00Z" + (f" ({hint})" if key else "")
        )
    return parsed


def _formatted(column: Column, date_format: str, key: str) -> pd.Series[pd.Timestamp]:
    if pd.api.types.is_float_dtype(column.values) and (column.values % 1 == 0).all():
        column = replace(column, values=column.values.astype(np.int64))
    if pd.api.types.is_datetime64_any_dtype(column.values) or pd.api.types.is_float_dtype(column.values):
        column.refuse(np.ones(len(column.values)), f"a text or an integer, as {key}date_format is {date_format!r}")
    try:
        parsed = dates_in(column.values, date_format)
    except (ValueError, re.error) as error:
        raise SettingsError(f"{key}date_format = {date_format!r}: {error}") from None
    hint = f" (for others set {key}date_format)" if key else ""
    column.refuse(parsed.isna(), f"a date of the format {date_format!r}{hint}")
    return parsed
