"""Periods of time: years, months, weeks, days, parts of them that recur, spans of seconds, or equal counts of samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError

RECURRING = ("weekpart", "daypart")
UNITS = ("year", "month", "week", "day", *RECURRING)
"""Periods of the calendar; weeks begin on Monday, weekparts are Monday to Friday and weekends."""

HOURS = (0, 6, 12, 18)
"""At which the parts of a day begin."""

_MOST = 1_000_000  # periods of all kinds; more are those of times in another unit
_DAY = 86400
_MONDAY = -3 * _DAY  # 1 January 1970 was a Thursday
_SECONDS = {
    "year": 365 * _DAY,
    "month": 28 * _DAY,
    "week": 7 * _DAY,
    "day": _DAY,
    "weekpart": 2 * _DAY,
    "daypart": 3600,
}


@dataclass(frozen=True)
class Periods:
    """Consecutive periods, numbered from 0.

    Attributes:
        bounds: int64 [P - 1], first time of each period but the first; a sample belongs to the last period that has begun.
        names: of all P periods, for display.
        start: of the first period. end: of the last one, exclusive.
        kinds: of all P periods where they recur, else empty.
    """

    bounds: Ints
    names: tuple[str, ...]
    start: int
    end: int
    kinds: tuple[str, ...] = ()

    def of(self, times: Ints) -> Ints:
        """The period of each time, int64."""
        return np.searchsorted(self.bounds, times, side="right")

    def part(self, times: Ints, parts: int) -> Ints:
        """Which of ``parts`` parts of equal length of its period each time is in, int64 from 0."""
        edges, period = np.array([self.start, *self.bounds, self.end]), self.of(times)
        length = edges[period + 1] - edges[period]
        found: Ints = ((times - edges[period]) * float(parts) / length).astype(np.int64)  # a float does not overflow
        return found.clip(max=parts - 1)


def periods(times: Ints, period: str | int, count: int = 1, unit: str = "s", hours: Sequence[int] = HOURS) -> Periods:
    """The periods from the first time to the last one.

    Args:
        times: int64 [n], at least one, in ``unit``.
        period: one of :data:`UNITS`, of times in seconds; a length in the unit of the times; or ``equal``.
        count: number of periods of ``equal``, which have equal numbers of samples, up to ties of their times.
        hours: at which the parts of a day begin, ascending; the last one ends where the next day's first begins.

    Raises:
        SettingsError: a calendar's period for times that are no seconds, or more than a million periods.
    """
    if period in UNITS and unit != "s":
        raise SettingsError(
            f"scenario.period = {period!r} requires times in seconds, but the unit is {unit!r}; use a number"
        )
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
    if period in ("year", "month"):
        code = "datetime64[Y]" if period == "year" else "datetime64[M]"
        edges = [np.datetime64(value, "s").astype(code) for value in (first, last)]
        dates = np.arange(edges[0], edges[1] + 2)
        begun = dates.astype("datetime64[s]").astype(np.int64)
        return Periods(begun[1:-1], tuple(map(str, dates[:-1])), int(begun[0]), int(begun[-1]))
    if period == "daypart":
        ends = (*hours[1:], hours[0])
        parts = {f"{hour:02}-{end or 24:02}": 3600 * hour for hour, end in zip(hours, ends, strict=True)}
    else:
        parts = {"weekdays": 0, "weekend": 5 * _DAY} if period == "weekpart" else {"": 0}
    return _in_turn(first, last, parts, *((_DAY, 0) if period in ("day", "daypart") else (7 * _DAY, _MONDAY)))


def _in_turn(first: int, last: int, parts: dict[str, int], cycle: int, zero: int) -> Periods:
    """The parts of cycles of some seconds, counted from ``zero``; ``parts``: where in a cycle each begins."""
    cycles = np.arange((first - zero) // cycle - 1, (last - zero) // cycle + 2, dtype=np.int64) * cycle + zero
    begun = (cycles[:, None] + np.array(list(parts.values()))).ravel()
    low, high = (int(place) for place in np.searchsorted(begun, [first, last], side="right"))
    kinds = (list(parts) * len(cycles))[low - 1 : high]
    dates = begun[low - 1 : high].astype("datetime64[s]").astype("datetime64[D]")
    names = tuple(f"{date} {kind}".strip() for date, kind in zip(dates, kinds, strict=True))
    edges = int(begun[low - 1]), int(begun[high])
    return Periods(begun[low:high], names, *edges, tuple(kinds) if len(parts) > 1 else ())
