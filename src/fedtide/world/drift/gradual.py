"""Sample by sample."""

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.bounds import LARGEST
from fedtide.world.drift.base import Drift, Population, StartSettings, from_start


class Gradual(Drift):
    """A growing share of every client's samples changes: with length L the share of round t is (t - start + 1) / L."""

    class Settings(StartSettings):
        name: str = "gradual"
        length: int = Field(10, ge=1, le=LARGEST, description="rounds until all samples have changed; 1: at once")

    settings: Settings

    def concepts(self, p: Population) -> Ints:
        return from_start(p, np.arange(p.timeline.rounds)[:, None] >= self.settings.start_round(p))

    def share(self, t: int, p: Population) -> float:
        return min(max((t - self.settings.start_round(p) + 1) / self.settings.length, 0.0), 1.0)
