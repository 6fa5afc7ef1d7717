"""Everybody takes part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedtide.participation.base import Participation
from fedtide.plugins import PluginSettings


class All(Participation):
    """Every present client takes part in every round."""

    class Settings(PluginSettings):
        """Settings of the rule."""

        name: str = "all"

    def draw(self, present: NDArray[np.int64], round_: int, seed: int) -> NDArray[np.int64]:
        """See :meth:`Participation.draw`."""
        return np.arange(len(present), dtype=np.int64)

    def expected_fraction(self, present: int) -> float:
        """See :meth:`Participation.expected_fraction`."""
        return 1.0
