"""All at once."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedtide.drift.base import Drift, DriftSettings, Ints, Population, When, from_start


class Sudden(Drift):
    """All groups change in one round, for good."""

    class Settings(DriftSettings):
        name: str = "sudden"
        start: When = Field(description="the round: rounds before it, {session: 3} or {period: 2013-07}")

    settings: Settings

    def concepts(self, p: Population) -> Ints:
        start = self.settings.start.of(p.timeline, "drift.start")
        return from_start(p, np.arange(p.timeline.rounds)[:, None] >= start)
