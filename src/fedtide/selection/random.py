"""Random selection."""

from __future__ import annotations

import numpy as np

from fedtide.core.plugins import PluginSettings
from fedtide.selection.base import Candidates, Selection


class Random(Selection):
    """As many clients as the budget allows (or ``portion`` asks for), uniformly without replacement."""

    class Settings(PluginSettings):
        """No settings."""

        name: str = "random"

    settings: Settings

    def choose(self, candidates: Candidates) -> list[int]:
        c = candidates
        size = min(c.most, len(c.eligible)) if c.size is None else c.size
        return np.sort(c.generator("lot").permutation(c.eligible)[:size]).tolist()  # type: ignore[no-any-return]
