"""What a protocol for summing label histograms provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fedtide.core.array_types import Ints
from fedtide.core.randomness import Randomness

NUMBER = 4
"""Bytes of a count or a frequency on the wire."""


class Histograms(ABC):
    """A one-off exchange: all clients upload their counts and receive the sum.

    Attributes:
        hides: whether the server learns nothing but the sum, so that clients compute and send their own scores.
    """

    hides: ClassVar[bool] = True

    @abstractmethod
    def total(self, counts: Ints, randomness: Randomness, session: int) -> Ints:
        """Exact sum [L] of the clients' counts [K, L]; draws are keyed by ``session``.

        Raises:
            SettingsError: the sum is too large for the arithmetic.
        """

    @abstractmethod
    def traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """Bytes that all clients together send and receive."""
