"""Columns of times: integers in a unit, ISO dates, or dates in a format that is given."""

from __future__ import annotations

import datetime
import re

import numpy as np
import pandas as pd

from fedtide.core.array_types import Bools, Ints
from fedtide.core.errors import SettingsError, shortened
from fedtide.world.adapters.columns import Column, integers

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_YEARS = (1900, 2200)  # from the first one, before the second one; other times are those of another unit or format
_BOUNDS = tuple(int(np.datetime64(str(year), "s").astype(np.int64)) for year in _YEARS)
_ZONE = re.compile(r":.*([zZ]|[+-]\d\d:?(\d\d)?)$")
_ALLOWED = f"a date from {_YEARS[0]} to {_YEARS[1] - 1}"


def times(column: Column, unit: str = "s", date_format: str | None = None, key: str = "") -> tuple[Ints, str]:
    """Times as int64 [n], and their unit: dates, and integers in ``s``, ``ms``, ``us`` or ``ns``, become seconds since 1970.

    Args:
        unit: of integers; those in any other unit stay as they are. date_format: of dates that are not ISO's, as in
            :meth:`datetime.datetime.strptime`; integers such as 20130131 are then dates, too. Dates without a zone are UTC.
        key: how settings begin in errors; without one there is no setting of the format.

    Raises:
        SettingsError: a time is missing, neither integer nor date, outside of 1900 to 2199, which suggests another unit, or
            some have a zone and others have none.
    """
    column.refuse(column.values.isna(), "a time")
    if date_format is None:
        known = integers(column, "a time", "an integer or a date")
        if known is not None:
            return (_seconds(column, known, unit, key), "s") if unit in _PER_SECOND else (known, unit)
    parsed = _parsed(column, key) if date_format is None else _formatted(column, date_format, key)
    seconds = parsed.dt.tz_localize(None).to_numpy(dtype="datetime64[s]").astype(np.int64)
    column.refuse(_outside(seconds), _ALLOWED)
    return seconds, "s" if unit in _PER_SECOND else unit


def _outside(seconds: Ints) -> Bools:
    return (seconds < _BOUNDS[0]) | (seconds >= _BOUNDS[1])


def _seconds(column: Column, values: Ints, unit: str, key: str) -> Ints:
    seconds = values // _PER_SECOND[unit]
    outside = _outside(seconds)
    if outside.any():
        finer = [other for other, count in _PER_SECOND.items() if not _outside(values // count).any()]
        hint = f"; set {key}unit: {finer[0]}" if finer else ""
        column.refuse(outside, f"a time from {_YEARS[0]} to {_YEARS[1] - 1} in {unit}{hint}")
    if unit == "s":
        for date_format, first, last in (("%Y%m%d", 19000101, 21991231), ("%Y", *_YEARS)):
            shaped = (values >= first) & (values <= last)
            if date_format == "%Y%m%d":
                month, day = values // 100 % 100, values % 100
                shaped &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
            if shaped.all():
                hint = f"set {key}date_format: '{date_format}'" if key else "write dates as 2013-01-31"
                column.refuse(shaped, f"seconds since 1970; {hint}")
    return seconds


def _parsed(column: Column, key: str) -> pd.Series[pd.Timestamp]:
    """ISO dates."""
    parsed = pd.to_datetime(column.values, utc=True, errors="coerce", format="ISO8601")
    hint = f" (for other dates set {key}date_format, such as '%d/%m/%Y')" if key else ""
    column.refuse(parsed.isna(), f"an integer or a date such as 2013-01-31T18:00:00Z{hint}")
    if not pd.api.types.is_datetime64_any_dtype(column.values):
        _refuse_mixed_zones(column)
    return parsed


def _formatted(column: Column, date_format: str, key: str) -> pd.Series[pd.Timestamp]:
    if pd.api.types.is_datetime64_any_dtype(column.values) or pd.api.types.is_float_dtype(column.values):
        column.refuse(np.ones(len(column.values)), f"a text or an integer, as {key}date_format is {date_format!r}")
    try:
        parsed = pd.to_datetime(column.values.astype(str), utc=True, errors="coerce", format=date_format)
    except (ValueError, re.error) as error:
        raise SettingsError(f"{key}date_format = {date_format!r}: {error}") from None
    column.refuse(parsed.isna(), f"a date of the format {date_format!r}")
    return parsed


def _refuse_mixed_zones(column: Column) -> None:
    codes, found = pd.factorize(column.values)
    zoned = np.array([_has_zone(value) for value in found], dtype=np.bool_)[codes]
    if zoned.any() and not zoned.all():
        with_zone, without = int(zoned.argmax()), int(zoned.argmin())
        shown = {row: repr(shortened(str(column.values.iloc[row]))) for row in (with_zone, without)}
        raise SettingsError(
            f"{column.place(with_zone)}: {column.name} is {shown[with_zone]}, with a time zone, but {shown[without]} "
            f"({column.place(without)}) has none; expected all with one, or none"
        )


def _has_zone(value: object) -> bool:
    if isinstance(value, datetime.datetime):
        return value.tzinfo is not None
    return bool(_ZONE.search(str(value).strip()))
