"""For a time."""

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.world.drift.base import Drift, Population, StartSettings, When, from_start, round_of


class Window(Drift):
    """All groups change in one round and change back in a later one."""

    class Settings(StartSettings):
        name: str = "window"
        until: When = Field(
            None, description="first round after it, given as `start`; null: three quarters of the rounds"
        )

    settings: Settings

    def concepts(self, p: Population) -> Ints:
        start = self.settings.start_round(p)
        until = round_of(self.settings.until, p.timeline, "drift.until", 0.75)
        if until <= start:
            raise SettingsError(f"drift.until is round {until}, drift.start round {start}; drift.until should be later")
        t = np.arange(p.timeline.rounds)[:, None]
        return from_start(p, (start <= t) & (t < until))
