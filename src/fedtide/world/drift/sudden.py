"""All at once."""

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.world.drift.base import Drift, Population, StartSettings, from_start


class Sudden(Drift):
    """All groups change in one round, for good."""

    class Settings(StartSettings):
        name: str = "sudden"

    settings: Settings

    def concepts(self, p: Population) -> Ints:
        start = self.settings.start_round(p)
        return from_start(p, np.arange(p.timeline.rounds)[:, None] >= start)
