"""There and back again."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedtide.core.bounds import LARGEST
from fedtide.drift.base import Drift, DriftSettings, Ints, Population, When, from_start


class Recurrent(Drift):
    """All groups change and change back, every ``period`` rounds."""

    class Settings(DriftSettings):
        name: str = "recurrent"
        start: When = Field(description="the first change: rounds before it, {session: 3} or {period: 2013-07}")
        period: int = Field(ge=1, le=LARGEST, description="rounds under a concept before the other one returns")

    settings: Settings

    def concepts(self, p: Population) -> Ints:
        since = np.arange(p.timeline.rounds)[:, None] - self.settings.start.of(p.timeline, "drift.start")
        return from_start(p, (since >= 0) & (since // self.settings.period % 2 == 0))
