"""No drift."""

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.world.drift.base import Drift, Population


class NoDrift(Drift):
    """All clients see the samples as they are, always."""

    class Settings(PluginSettings):
        name: str = "none"

    def concepts(self, p: Population) -> Ints:
        return np.zeros((p.timeline.rounds, len(p.group)), dtype=np.int64)
