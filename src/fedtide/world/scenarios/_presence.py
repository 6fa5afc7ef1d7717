"""Who is present when: patterns by round and by session, and traces in seconds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Bools, Ints
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.presence.visits import Visits
from fedtide.world.scenarios.base import Scenario, Span, WorldInput, write_spans, write_visits
from fedtide.world.timeline import Timeline


class PatternSettings(PluginSettings):
    rounds: int = Field(100, ge=1, description="communication rounds")
    num_clients: int = Field(10, ge=1, description="total clients")
    start: int = Field(50, ge=0, description="round of the first change, counted from 0")
    interval: int = Field(10, ge=1, description="rounds between changes")
    step: int = Field(1, ge=1, description="clients per change")
    session_at_change: bool = Field(False, description="begin a new session at every arrival or departure")


def changes(settings: PatternSettings) -> list[int]:
    """Number of changes up to each round, that round included."""
    return [0 if t < settings.start else (t - settings.start) // settings.interval + 1 for t in range(settings.rounds)]


def write_presence(world: WorldInput, present: Bools, session_at_change: bool, notes: dict[str, Any]) -> Timeline:
    """The timeline of clients that keep their data and are present as listed, bool [N, rounds].

    A session is evaluated on the labels that its clients hold.
    """
    changed = (present[:, 1:] != present[:, :-1]).any(0)
    starts = [0, *(np.flatnonzero(changed) + 1).tolist()]
    ends = [*starts[1:], present.shape[1]]
    spans = [
        Span(np.flatnonzero(present[:, start]), end - start, number if session_at_change else 0)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return write_spans(world, spans, len(present), notes)


def cycle(num_devices: int, groups: int, sessions: int) -> Iterator[Ints]:
    """Groups of ``num_devices`` consecutive ids take turns: the whole population changes at each boundary."""
    for session in range(sessions):
        yield session % groups * num_devices + np.arange(num_devices)


def markov(
    first: Ints, pool: int, sessions: int, p_leave: float, arrivals: int, min_devices: int, seed: int
) -> Iterator[Ints]:
    """Devices leave and arrive at random between sessions; ``first`` are the ids of the first one, of 0..pool-1, ascending.

    At a boundary each present device leaves with probability ``p_leave``; if fewer than ``min_devices`` would remain, the
    leaving devices with the lowest ids stay. Then ``arrivals`` of the devices that were absent arrive, or all of them. A
    boundary's draw depends only on the world seed and the boundary's number.
    """
    present = first
    yield present
    for session in range(1, sessions):
        rng = generator(seed, "scenario.presence", session)
        leaves = rng.random(pool)[present] < p_leave
        missing = max(0, min_devices - int((~leaves).sum()))
        leaves[np.flatnonzero(leaves)[:missing]] = False
        absent = np.setdiff1d(np.arange(pool), present)
        arriving = rng.choice(absent, size=min(arrivals, len(absent)), replace=False)
        present = np.sort(np.concatenate([present[~leaves], arriving]))
        yield present


class SecondsSettings(PluginSettings):
    num_clients: int = Field(100, ge=1, description="total clients")
    rounds: int = Field(100, ge=1, description="communication rounds")
    seconds_per_round: int = Field(
        60, ge=1, description="seconds between the starts of rounds; not used with `mode: async`"
    )
    start_second: int = Field(0, ge=0, description="start of the first round in the trace, in seconds")
    session_at_change: bool = Field(False, description="begin a new session at every arrival or departure")
    file: str


class DeviceTrace(Scenario):
    """Devices that come and go by the seconds of a file."""

    settings: SecondsSettings
    in_seconds = True

    def files(self) -> tuple[Path, ...]:
        return (Path(self.settings.file),)


@dataclass(frozen=True)
class Replay:
    """One device's trace, repeated for ever, in whole seconds.

    Attributes:
        intervals: [first, last] second of each time that it is available, both included.
        begin, period: second s is second ``begin + (s - begin) mod period`` of the trace.
    """

    intervals: Sequence[tuple[float, float]]
    begin: int
    period: float

    def available(self, seconds: Ints) -> Bools:
        now = np.mod(seconds - self.begin, self.period) + self.begin
        found = np.zeros(now.shape, dtype=np.bool_)
        for first, last in self.intervals:
            found |= (first <= now) & (now <= last)
        return found


def write_replays(world: WorldInput, settings: SecondsSettings, devices: Sequence[Replay]) -> Timeline:
    """The timeline in which client k is present in the rounds at whose first second ``devices[k]`` is available.

    With ``mode: async``, from the first second of each time that it is available up to the last one.
    """
    notes = {"scenario": settings.name}
    if world.events:
        visits = Visits.of(
            [[(first - device.begin, last - device.begin) for first, last in device.intervals] for device in devices],
            [settings.start_second - device.begin for device in devices],
            [device.period for device in devices],
        )
        return write_visits(world, visits, settings.rounds, settings.session_at_change, notes)
    seconds = settings.start_second + settings.seconds_per_round * np.arange(settings.rounds)
    present = np.stack([device.available(seconds) for device in devices])
    return write_presence(world, present, settings.session_at_change, notes)
