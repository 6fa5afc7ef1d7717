"""When clients are present, in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtide.core.array_types import Bools, Floats, Ints

_EARLY = 1e-3  # a change less than this share of a tick after an instant falls into it


@dataclass(frozen=True)
class Visits:
    """When N clients are present, each by a trace of its own.

    Attributes:
        client: int64 [n], ascending. begin, end: float64 [n], a visit lasts from ``begin`` up to ``end``, in seconds of the
            client's trace; visits of a client ascend and lie apart.
        start: float64 [N], second of its trace at which the run starts. period: float64 [N], second of its trace at which it
            starts again from 0; 0 if it does not.
    """

    client: Ints
    begin: Floats
    end: Floats
    start: Floats
    period: Floats

    @staticmethod
    def of(visits: Sequence[Sequence[tuple[float, float]]], start: Sequence[float], period: Sequence[float]) -> Visits:
        """From each client's visits in any order; what touches is one visit, what is outside the period is left out."""
        rows = [
            (client, *visit)
            for client, (own, length) in enumerate(zip(visits, period, strict=True))
            for visit in merged((max(0.0, begin), min(end, length or np.inf)) for begin, end in own)
            if visit[0] < visit[1]
        ]
        columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        ends = (np.array(values, dtype=np.float64) for values in (start, period))
        return Visits(columns[0].astype(np.int64), columns[1], columns[2], *ends)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals in the order of their beginnings; those that touch are one."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


class Changes:
    """Arrivals and departures of N clients in whole ticks of ``slot`` seconds from the start of a run.

    What happens between two ticks counts as of the later one.
    """

    def __init__(self, visits: Visits, slot: float) -> None:
        clients = len(visits.start)
        self._start = np.round(visits.start / slot).astype(np.int64)
        self._period = np.where(visits.period > 0, np.maximum(1, np.round(visits.period / slot)), 0).astype(np.int64)
        ticks = np.ceil(np.stack([visits.begin, visits.end], axis=1) / slot - _EARLY).astype(np.int64)
        length = self._period[visits.client, None]
        ticks = np.where(length > 0, np.minimum(ticks, length), ticks)
        of_client, ticks = np.repeat(visits.client, 2), ticks.ravel()
        # Whoever is present from the start of its trace to its end stays when it starts again.
        (opens, closes), repeats = (ticks == 0, ticks == length.repeat(2)), self._period > 0
        both = np.bincount(of_client[opens], minlength=clients) * np.bincount(of_client[closes], minlength=clients)
        self._inside = repeats & (both > 0)
        kept = ~(self._inside[of_client] & (opens | closes))
        self._ticks, of_client = ticks[kept], of_client[kept]
        self._number = np.bincount(of_client, minlength=clients)
        self._first = np.cumsum(self._number) - self._number
        self._span = int(max(self._ticks.max(initial=0), self._period.max(initial=0))) + 2
        self._keys = of_client * self._span + self._ticks
        self._rows = np.arange(clients) * self._span

    @property
    def longest(self) -> int:
        """Ticks after which the last of the traces starts again; 0 if none does."""
        return int(self._period.max(initial=0))

    def until(self, now: int) -> Ints:
        """Number of each client's changes up to and including a tick, int64 [N]; only differences have a meaning."""
        own = self._start + now
        cycle = np.where(self._period > 0, own // np.maximum(1, self._period), 0)
        phase = (own - cycle * self._period).clip(-1, self._span - 1)
        done: Ints = cycle * self._number + np.searchsorted(self._keys, self._rows + phase, side="right") - self._first
        return done

    def present(self, now: int) -> Bools:
        """Who is present after the changes of a tick, bool [N]."""
        found: Bools = self.until(now) % 2 != self._inside
        return found

    def following(self, now: int, of: Bools) -> int | None:
        """The next tick after ``now`` with a change of the clients ``of``, bool [N]."""
        done = self.until(now)
        cycle = np.where(self._period > 0, done // np.maximum(1, self._number), 0)
        coming = of & (done - cycle * self._number < self._number)
        if not coming.any():
            return None
        place = (self._first + done - cycle * self._number)[coming]
        return int((cycle[coming] * self._period[coming] + self._ticks[place] - self._start[coming]).min())
