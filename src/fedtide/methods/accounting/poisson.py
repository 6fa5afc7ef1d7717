"""Amplification by Poisson sampling, from the privacy loss distributions of the library dp-accounting.

A client takes part in each round with a probability q of its own draw, and nobody but the server learns in which. Neighbors
differ in all updates of one client, which are replaced by zero.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtide.core import extras


def require() -> None:
    """Refuse to go on without the library, with a SettingsError."""
    instead = "use participation: fixed, for which no amplification is claimed"
    extras.require("dp", "uplink noise with participation bernoulli", otherwise=instead)


def _accountant() -> Any:
    import dp_accounting

    return dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)


def _event(q: float, z: float, rounds: int) -> Any:
    import dp_accounting

    sampled = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    return dp_accounting.SelfComposedDpEvent(sampled, rounds)


@functools.lru_cache(maxsize=4096)
def epsilon(q: float, z: float, rounds: int, delta: float) -> float:
    """Epsilon of a client who could take part in some rounds, with noise of multiplier z."""
    if rounds == 0:
        return 0.0
    found: float = _accountant().compose(_event(q, z, rounds)).get_epsilon(delta)
    return found


@functools.lru_cache
def multiplier(q: float, rounds: int, epsilon_: float, delta: float) -> float:
    """z for which ``rounds`` cost ``epsilon_``, to 1e-6."""
    import dp_accounting

    found = dp_accounting.calibrate_dp_mechanism(
        _accountant, lambda z: _event(q, z, rounds), epsilon_, delta, dp_accounting.LowerEndpointAndGuess(0, 1)
    )
    return float(found)


def redrawn(q: float, populations: Sequence[int], epsilon_: float) -> float:
    """What is added to delta since rounds without a participant are drawn again.

    ``(1 + e^epsilon)`` times the total variation between such samples of some populations and Poisson's, ``sum_t (1 - q)^K_t``.
    """
    return float((1 + np.exp(epsilon_)) * np.sum((1 - q) ** np.asarray(populations, dtype=np.float64)))
