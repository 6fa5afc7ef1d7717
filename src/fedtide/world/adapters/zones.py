"""The wall clock of times that have an offset or a time zone: the clock by which people have days, weeks and months."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pandas as pd

from fedtide.core.array_types import Floats, Ints
from fedtide.core.errors import SettingsError, meant
from fedtide.world.adapters.columns import Column

_OFFSET = re.compile(r"[T :]\d.*?(?:[zZ]|([+-])(\d\d):?(\d\d)?)$")
_MOST = 1000  # times that a proposed zone is tried on


def refuse_unknown_zone(name: str) -> None:
    """Refuse what is no name of a time zone."""
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        problem = f"timezone = {name!r} is not a time zone known to this system, such as UTC or Europe/Berlin"
        raise SettingsError(problem + meant(name, sorted(available_timezones()))) from None


def wall_clock(
    column: Column, dates: pd.Series[Any], timezone: str | None, key: str = "", date_format: str | None = None
) -> Ints:
    """Seconds since 1970, int64 [n], on the clock that shows the times of ``column``, which are ``dates`` in UTC.

    The clock is that of ``timezone``; without one, of the zone or the one offset that all times have. Times without either are
    as they are written.

    Raises:
        SettingsError: only some times have an offset, offsets differ and there is no ``timezone``, or there is one for times
            without an offset.
    """
    offsets = offsets_of(column.values, date_format)
    none = np.isnan(offsets)
    if timezone is not None:
        column.refuse(none, f"a time with an offset, such as +01:00, for {key}timezone; times without one are local")
        return in_zone(dates, timezone)
    if isinstance(column.values.dtype, pd.DatetimeTZDtype):
        return in_seconds(column.values)
    if none.all():
        return in_seconds(dates)
    if none.any():
        column.refuse(~none, "times that all have a time zone, or none")
    cure = f"set {key}timezone, such as Europe/Berlin or UTC" if key else "give all times in one time zone"
    column.refuse(offsets != offsets[0], f"the offset {shown(offsets[0])} of the first row; if offsets differ, {cure}")
    return in_seconds(dates) + int(offsets[0])


def in_zone(dates: pd.Series[Any], timezone: str) -> Ints:
    """Seconds since 1970 of dates in UTC on the clock of a zone, with its daylight saving."""
    return in_seconds(dates.dt.tz_convert(timezone))


def in_seconds(dates: pd.Series[Any]) -> Ints:
    """Seconds since 1970 of dates as their own clock shows them."""
    seconds: Ints = dates.dt.tz_localize(None).to_numpy(dtype="datetime64[s]").astype(np.int64)
    return seconds


def offsets_of(values: pd.Series[Any], date_format: str | None = None) -> Floats:
    """Seconds that each time, a text in a format, is ahead of UTC, float64 [n]; NaN if it has no zone."""
    if date_format is not None and "%z" not in date_format.lower():
        return np.full(len(values), math.nan)
    codes, found = pd.factorize(values)
    return np.array([_offset(value) for value in found], dtype=np.float64)[codes]


def proposed(values: pd.Series[Any], dates: pd.Series[Any], date_format: str | None = None) -> tuple[str, str | None]:
    """The clock on which times, ``dates`` in UTC, are read, a clause, and a setting ``timezone`` for them if they need one."""
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        return IN_UTC if str(values.dtype.tz) == "UTC" else f"; local times of {values.dtype.tz}", None
    offsets = offsets_of(values, date_format)
    found = np.unique(offsets[~np.isnan(offsets)])
    if not len(found):
        return "", None
    if len(found) == 1:
        return (f"; local times with the offset {shown(found[0])}" if found[0] else IN_UTC), None
    known, listed = pd.DatetimeIndex(dates), " and ".join(map(shown, found[:5]))
    order = np.argsort(known, kind="stable")
    changes = np.flatnonzero(np.diff(offsets[order]))
    tried = order[np.unique([0, *changes[:_MOST], *(changes[:_MOST] + 1), len(order) - 1])]
    zones = [zone for zone in sorted(available_timezones()) if _fits(known[tried], offsets[tried], zone)]
    regions = Counter(zone.partition("/")[0] for zone in zones)
    zones.sort(key=lambda zone: (-regions[zone.partition("/")[0]], zone.rpartition("/")[2].isupper(), zone))
    if not zones:
        return f"; offsets {listed} fit no time zone, so in UTC; for local times set data.timezone", "UTC"
    return f"; local times of {zones[0]}, which has their offsets {listed}", zones[0]


IN_UTC = "; in UTC; for local times set data.timezone"


def shown(offset: float) -> str:
    """An offset as it is written, such as +05:30."""
    minutes = int(abs(offset)) // 60
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _fits(dates: pd.DatetimeIndex, offsets: Floats, zone: str) -> bool:
    if "/" not in zone or zone.startswith(("Etc/", "posix/", "right/")):
        return False
    local = dates.tz_convert(zone).tz_localize(None) - dates.tz_localize(None)
    return bool((local.total_seconds().to_numpy() == offsets).all())


def _offset(value: object) -> float:
    if isinstance(value, datetime.datetime):
        ahead = value.utcoffset()
        return math.nan if ahead is None else ahead.total_seconds()
    if not (found := _OFFSET.search(str(value).strip())):
        return math.nan
    sign, hours, minutes = found.groups()
    return 0.0 if sign is None else float(f"{sign}1") * (3600 * int(hours) + 60 * int(minutes or 0))
