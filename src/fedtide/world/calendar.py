"""Periods of time: months, weeks, days, spans of seconds, or equal counts of samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError

UNITS = ("month", "week", "day")  # periods of the calendar (UTC); weeks begin on Monday
_MOST = 1_000_000  # periods of all kinds; more are those of times in another unit
_DAYS_TO_MONDAY = 3  # 1 January 1970 was a Thursday
_SECONDS = {"month": 28 * 86400, "week": 7 * 86400, "day": 86400}


@dataclass(frozen=True)
class Periods:
    """Consecutive periods, numbered from 0.

    Attributes:
        bounds: int64 [P - 1], first time of each period but the first; a sample belongs to the last period that has begun.
        names: of all P periods, for display.
        start: of the first period. end: of the last one, exclusive.
    """

    bounds: Ints
    names: tuple[str, ...]
    start: int
    end: int

    def of(self, times: Ints) -> Ints:
        """The period of each time, int64."""
        return np.searchsorted(self.bounds, times, side="right")

    def part(self, times: Ints, parts: int) -> Ints:
        """Which of ``parts`` parts of equal length of its period each time is in, int64 from 0."""
        edges, period = np.array([self.start, *self.bounds, self.end]), self.of(times)
        length = edges[period + 1] - edges[period]
        found: Ints = ((times - edges[period]) * float(parts) / length).astype(np.int64)  # a float does not overflow
        return found.clip(max=parts - 1)


def periods(times: Ints, period: str | int, count: int = 1, unit: str = "s") -> Periods:
    """The periods from the first time to the last one.

    Args:
        times: int64 [n], at least one, in ``unit``.
        period: ``month``, ``week`` or ``day`` (times in seconds), a length in the unit of the times, or ``equal``.
        count: number of periods of ``equal``, which have equal numbers of samples, up to ties of their times.

    Raises:
        SettingsError: a calendar's period for times that are no seconds, or more than a million periods.
    """
    if period in UNITS and unit != "s":
        raise SettingsError(f"scenario.period = {period!r} needs times in seconds, these are in {unit!r}; use a number")
    first, last = int(times.min()), int(times.max())
    length = _SECONDS.get(period, last - first + 1) if isinstance(period, str) else period
    if (number := (last - first) // length) >= _MOST:
        raise SettingsError(
            f"period = {period!r}: times from {first} to {last} ({unit}) have {number:,} periods; at most {_MOST:,} are "
            "possible"
        )
    if isinstance(period, int):
        starts = np.arange(first, last + 1, period, dtype=np.int64)
        return Periods(starts[1:], tuple(f"from {start}" for start in starts), first, int(starts[-1]) + period)
    if period == "equal":
        ordered = np.sort(times)
        starts = np.unique(ordered[np.arange(count) * len(ordered) // count])
        return Periods(starts[1:], tuple(f"from {start}" for start in starts), first, last + 1)
    if period == "month":
        edges = [np.datetime64(value, "s").astype("datetime64[M]") for value in (first, last)]
        months = np.arange(edges[0], edges[1] + 2)
        begun = months.astype("datetime64[s]").astype(np.int64)
        return Periods(begun[1:-1], tuple(str(month) for month in months[:-1]), int(begun[0]), int(begun[-1]))
    days = {"week": 7, "day": 1}[period]
    offset = _DAYS_TO_MONDAY if period == "week" else 0
    numbers = np.arange((first // 86400 + offset) // days, (last // 86400 + offset) // days + 2)
    begun = (numbers * days - offset) * 86400
    names = tuple(str(np.datetime64(int(day), "s").astype("datetime64[D]")) for day in begun[:-1])
    return Periods(begun[1:-1], names, int(begun[0]), int(begun[-1]))
