"""For a time."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedtide.core.errors import SettingsError
from fedtide.drift.base import Drift, DriftSettings, Ints, Population, When, from_start


class Window(Drift):
    """All groups change in one round and change back in a later one."""

    class Settings(DriftSettings):
        name: str = "window"
        start: When = Field(description="the change: rounds before it, {session: 3} or {period: 2013-07}")
        until: When = Field(description="the first round after it, in the same way")

    settings: Settings

    def concepts(self, p: Population) -> Ints:
        start, until = (
            moment.of(p.timeline, f"drift.{key}")
            for key, moment in (("start", self.settings.start), ("until", self.settings.until))
        )
        if until <= start:
            raise SettingsError(f"drift.until is round {until}, drift.start round {start}; it should be later")
        t = np.arange(p.timeline.rounds)[:, None]
        return from_start(p, (start <= t) & (t < until))
