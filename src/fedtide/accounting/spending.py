"""What each client has spent of its privacy after each round of a run, computed before training.

Neighbours: all updates of one client are replaced by zero, while the timeline, the sizes of cohorts and, but for Poisson
samples, the cohorts themselves are public. No amplification is claimed of any other sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedtide.accounting import gaussian, poisson
from fedtide.accounting.cohorts import Cohorts
from fedtide.accounting.mechanisms import Independent, Mechanism, sensitivities, separation
from fedtide.core.array_types import Floats, Ints
from fedtide.core.errors import SettingsError

_MOST = 50  # different numbers of rounds whose privacy loss is computed, up to a second each


@dataclass(frozen=True)
class Spending:
    """Clients (N) after T rounds.

    Attributes:
        z: noise multiplier. delta: with what is added for rounds drawn again. amplified: whether samples are Poisson.
        participations, separation: int64 [N]; the fewest rounds between two. sensitivity: [N], of all updates of a client to
            what has noise, NaN where amplified. epsilon: [N]. after: [T], largest epsilon of any client after each round.
    """

    z: float
    delta: float
    amplified: bool
    participations: Ints
    separation: Ints
    sensitivity: Floats
    epsilon: Floats
    after: Floats


def spend(cohorts: Cohorts, mechanism: Mechanism, starts: Ints, z: float, delta: float) -> Spending:
    """What noise of multiplier ``z`` costs, everything for 0; ``starts`` as in :mod:`fedtide.accounting.mechanisms`.

    Raises:
        SettingsError: so many empty rounds are to be expected that the sample is no Poisson sample; or a library is missing.
    """
    taken, participations = cohorts.drawn.astype(np.float64), cohorts.drawn.sum(axis=1)
    amplified = cohorts.rate is not None and isinstance(mechanism, Independent)
    if not z:
        sens, epsilon = np.full(len(taken), np.nan), np.where(participations > 0, np.inf, 0.0)
        after = np.full(taken.shape[1], np.inf)
    elif amplified:
        sens, (epsilon, after, delta) = np.full(len(taken), np.nan), _poisson(cohorts, z, delta)
    else:
        so_far = sensitivities(mechanism, taken, starts)
        sens = so_far[:, -1]
        epsilon, after = gaussian.epsilon(sens / z, delta), gaussian.epsilon(so_far.max(axis=0) / z, delta)
    return Spending(z, delta, amplified, participations, separation(taken), sens, epsilon, after)


def multiplier(cohorts: Cohorts, mechanism: Mechanism, starts: Ints, epsilon: float, delta: float) -> float:
    """z with which the client that spends most spends ``epsilon``."""
    if cohorts.rate is not None and isinstance(mechanism, Independent):
        poisson.require()
        return poisson.multiplier(cohorts.rate, int(cohorts.eligible.sum(axis=1).max()), epsilon, delta)
    sens = sensitivities(mechanism, cohorts.drawn.astype(np.float64), starts)[:, -1]
    return float(sens.max()) / gaussian.mu(epsilon, delta)


def _poisson(cohorts: Cohorts, z: float, delta: float) -> tuple[Floats, Floats, float]:
    """Epsilon [N] of each client and [T] of the one that has spent most after each round, and the delta they hold at."""
    poisson.require()
    q = cohorts.rate or 0.0
    chances, populations = np.cumsum(cohorts.eligible, axis=1, dtype=np.int64), cohorts.eligible.sum(axis=0).tolist()
    _refuse_empty_rounds(q, poisson.redrawn(q, populations, 0.0), delta)
    most = int(chances.max())
    grid = np.unique(np.ceil(np.linspace(0, most, min(most, _MOST) + 1)).astype(np.int64))
    values = np.array([poisson.epsilon(q, z, count, delta) for count in grid.tolist()])

    def upwards(counts: Ints) -> Floats:
        found: Floats = values[np.searchsorted(grid, counts)]
        return found

    epsilon, after = upwards(chances[:, -1]), upwards(chances.max(axis=0))
    _refuse_empty_rounds(q, added := poisson.redrawn(q, populations, float(after[-1])), delta)
    return epsilon, after, delta + added


def _refuse_empty_rounds(q: float, added: float, delta: float) -> None:
    """Refuse samples that are drawn again too often, which adds to delta."""
    if added > delta / 10:
        raise SettingsError(
            f"uplink noise: participation.probability = {q:g} leaves rounds empty too often, which are then drawn again (this "
            f"would add {added:.1e} or more to delta = {delta:.1e}); raise it, have more clients, or use participation: fixed"
        )
