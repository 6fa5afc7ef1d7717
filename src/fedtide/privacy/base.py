"""What an exchange of label histograms provides, and how one is chosen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Way = Literal["plain", "masked", "he"]

NUMBER = 4
"""Bytes of a count or a frequency on the wire."""


class Histograms(ABC):
    """A one-off exchange: every client's counts go up, the sum comes down to all of them.

    Attributes:
        hides: whether the server learns nothing but the sum, so that clients work out their own scores and send them.
    """

    hides: ClassVar[bool] = True

    @abstractmethod
    def total(self, counts: Ints, seed: int, session: int) -> Ints:
        """Exact sum [L] of the clients' counts [K, L]; ``seed`` and ``session`` key its draws.

        Raises:
            SettingsError: the sum is too large for the arithmetic.
        """

    @abstractmethod
    def traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """Bytes that all clients together send and receive in it."""


def histograms(way: Way) -> Histograms:
    """The exchange of a name.

    Raises:
        SettingsError: it needs a package that is not installed.
    """
    from fedtide.privacy import he, masked, plain

    ways: dict[Way, type[Histograms]] = {"plain": plain.Exchange, "masked": masked.Exchange, "he": he.Exchange}
    return ways[way]()
