"""Traces in seconds: who is available when, and rounds of so many seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Bools, Ints
from fedtide.core.plugins import PluginSettings
from fedtide.world.presence.visits import Visits
from fedtide.world.scenarios._presence import write_presence
from fedtide.world.scenarios.base import Scenario, WorldInput, write_visits
from fedtide.world.timeline import Timeline


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
        begin, period: what happens at second s is what the trace says of ``begin + (s - begin) mod period``.
    """

    intervals: Sequence[tuple[float, float]]
    begin: int
    period: int

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
    if world.events:
        visits = Visits.of(
            [[(first - device.begin, last - device.begin) for first, last in device.intervals] for device in devices],
            [settings.start_second - device.begin for device in devices],
            [device.period for device in devices],
        )
        return write_visits(world, visits, settings.rounds, settings.session_at_change, {"scenario": settings.name})
    seconds = settings.start_second + settings.seconds_per_round * np.arange(settings.rounds)
    present = np.stack([device.available(seconds) for device in devices])
    return write_presence(world, present, settings.session_at_change, settings.name)
