"""What each client has spent of its privacy after each round of a run, computed before training.

Neighbors: all updates of one client are replaced by zero, while the timeline, the sizes of cohorts and, but for Poisson
samples, the cohorts themselves are public. No amplification is claimed of any other sample, and nothing at all of clients whose
rounds are trained again with their noise.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.methods.accounting import gaussian, poisson
from fedtide.methods.accounting.cohorts import Cohorts
from fedtide.methods.accounting.mechanisms import Independent, Mechanism, sensitivities, separation

_MOST = 50  # different numbers of rounds whose privacy loss is computed, up to a second each
_NUMBERS = 1 << 22  # of the clients and rounds that are looked at at once


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
    """What noise of multiplier ``z`` costs, everything for 0; ``starts`` as in :mod:`fedtide.methods.accounting.mechanisms`.

    A SettingsError if so many empty rounds are to be expected that the sample is no Poisson sample, or a library is missing.
    """
    taken, participations = cohorts.drawn, cohorts.drawn.sum(axis=1)
    amplified = cohorts.rate is not None and isinstance(mechanism, Independent)
    if not z:
        sens, epsilon = np.full(len(taken), np.nan), np.where(participations > 0, np.inf, 0.0)
        after = np.full(taken.shape[1], np.inf)
    elif amplified:
        sens, (epsilon, after, delta) = np.full(len(taken), np.nan), _poisson(cohorts, z, delta)
    else:
        sens, largest = _last_and_largest(taken, lambda few: sensitivities(mechanism, few, starts))
        values, places = np.unique(sens, return_inverse=True)
        epsilon, after = gaussian.epsilon(values / z, delta)[places], gaussian.epsilon(largest / z, delta)
    if again := cohorts.retrained:
        exposed = (cohorts.eligible if amplified else taken)[:, :again].any(axis=1)
        epsilon, after = np.where(exposed, np.inf, epsilon), np.where(np.arange(len(after)) < again, after, np.inf)
    return Spending(z, delta, amplified, participations, separation(taken), sens, epsilon, after)


def multiplier(cohorts: Cohorts, mechanism: Mechanism, starts: Ints, epsilon: float, delta: float) -> float:
    """z with which the client that spends most spends ``epsilon``."""
    if cohorts.rate is not None and isinstance(mechanism, Independent):
        poisson.require()
        return poisson.multiplier(cohorts.rate, int(cohorts.eligible.sum(axis=1).max()), epsilon, delta)
    sens, _ = _last_and_largest(cohorts.drawn, lambda few: sensitivities(mechanism, few, starts))
    return float(sens.max()) / gaussian.mu(epsilon, delta)


def _last_and_largest(clients: Bools, cumulative: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
    """The last column [N] and the largest of each column [T] of ``cumulative``, which is given a few rows [n, T] at a time."""
    last, largest = [], np.zeros(clients.shape[1])
    for first in range(0, len(clients), few := max(1, _NUMBERS // clients.shape[1])):
        found = cumulative(clients[first : first + few].astype(np.float64))
        last.append(found[:, -1].copy())
        np.maximum(largest, found.max(axis=0), out=largest)
    return np.concatenate(last), largest


def _poisson(cohorts: Cohorts, z: float, delta: float) -> tuple[Floats, Floats, float]:
    """Epsilon [N] of each client and [T] of the one that has spent most after each round, and the delta they hold at."""
    poisson.require()
    q = cohorts.rate or 0.0
    populations = cohorts.eligible.sum(axis=0).tolist()
    _refuse_empty_rounds(q, poisson.redrawn(q, populations, 0.0), delta)
    chances, largest = _last_and_largest(cohorts.eligible, lambda few: np.cumsum(few, axis=1))
    most = int(chances.max())
    grid = np.unique(np.ceil(np.linspace(0, most, min(most, _MOST) + 1)).astype(np.int64))
    values = np.array([poisson.epsilon(q, z, count, delta) for count in grid.tolist()])

    def upwards(counts: Floats) -> Floats:
        found: Floats = values[np.searchsorted(grid, counts)]
        return found

    epsilon, after = upwards(chances), upwards(largest)
    _refuse_empty_rounds(q, added := poisson.redrawn(q, populations, float(after[-1])), delta)
    return epsilon, after, delta + added


def _refuse_empty_rounds(q: float, added: float, delta: float) -> None:
    """Refuse samples that are drawn again too often, which adds to delta."""
    if added > delta / 10:
        raise SettingsError(
            f"uplink noise: participation.probability = {q:g} leaves too many rounds empty, which are then sampled "
            f"again (this would add {added:.1e} or more to delta = {delta:.1e}); raise it, add clients, or use "
            "participation: fixed"
        )
