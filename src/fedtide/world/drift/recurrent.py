"""There and back again."""

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.bounds import LARGEST
from fedtide.world.drift.base import Drift, Population, StartSettings, from_start


class Recurrent(Drift):
    """All groups change and change back, every ``period`` rounds."""

    class Settings(StartSettings):
        name: str = "recurrent"
        period: int = Field(10, ge=1, le=LARGEST, description="rounds under a concept before the next switch")

    settings: Settings

    def concepts(self, p: Population) -> Ints:
        since = np.arange(p.timeline.rounds)[:, None] - self.settings.start_round(p)
        return from_start(p, (since >= 0) & (since // self.settings.period % 2 == 0))
