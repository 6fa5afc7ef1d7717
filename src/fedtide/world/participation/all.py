"""Full participation."""

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.world.participation.base import Participation


class All(Participation):
    """Every present client takes part in every round."""

    class Settings(PluginSettings):
        name: str = "all"

    settings: Settings
    private = True

    def draw(self, present: Ints, round_: int, seed: int) -> Ints:
        return np.arange(len(present), dtype=np.int64)

    def participation_fraction(self, present: int) -> float:
        return 1.0
