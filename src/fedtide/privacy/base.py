"""What an exchange of label histograms provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

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
