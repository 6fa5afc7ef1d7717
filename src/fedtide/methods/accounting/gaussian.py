"""Exact (epsilon, delta) of a Gaussian mechanism.

``mu`` is the sensitivity over the noise's standard deviation. Mechanisms that are applied one after the other, with noise of
their own, are one of ``mu^2 = sum mu_i^2``. Balle and Wang (2018, theorem 8); mu is that of Dong, Roth and Su (2022).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from fedtide.core.array_types import Floats

_HALVINGS = 100


def delta(epsilon: ArrayLike, mu: ArrayLike) -> Floats:
    """The smallest delta for an epsilon, ``Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)``; mu > 0."""
    e, m = np.asarray(epsilon, dtype=np.float64), np.asarray(mu, dtype=np.float64)
    found: Floats = ndtr(m / 2 - e / m) - np.exp(e + log_ndtr(-m / 2 - e / m))
    return found


def epsilon(mu: ArrayLike, delta_: float) -> Floats:
    """The smallest epsilon of each ``mu`` >= 0 at a delta in (0, 1), to rounding; from above."""
    m = np.asarray(mu, dtype=np.float64)
    used = np.where(m > 0, m, 1.0)
    low, high = np.zeros_like(used), used**2 / 2 + used * np.sqrt(2 * np.log(1 / delta_))  # what concentration allows
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = delta(middle, used) <= delta_
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    found: Floats = np.where((m > 0) & (delta(0.0, used) > delta_), high, 0.0)
    return found


def mu(epsilon_: float, delta_: float) -> float:
    """The largest mu that keeps an epsilon > 0 at a delta in (0, 1)."""
    high = 1.0
    while delta(epsilon_, high) <= delta_:
        high *= 2

    def excess(value: float) -> float:
        return float(delta(epsilon_, value)) - delta_

    found: Any = brentq(excess, 1e-9, high, xtol=1e-13, rtol=1e-14)
    return float(found)
