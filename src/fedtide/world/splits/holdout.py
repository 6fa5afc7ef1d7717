"""Samples held out of data whose clients and times are known, without a look at the future."""

from __future__ import annotations

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.randomness import generator


def hold_out(
    positions: Ints, groups: Ints, periods: Ints, times: Ints | None, share: float, seed: int, purpose: str
) -> tuple[Ints, Ints]:
    """Hold out a share of every group's samples of every period; positions kept, and held out, both ascending.

    Of m samples, share * m are held out, rounded up or down at random so that the expected number is exact. Draws are keyed by
    the seed, the purpose and the period, so they do not depend on later samples.

    Args:
        positions: int64 [n] positions of the samples, ascending.
        groups, periods: int64 [n], who made a sample (its client, or its label), and in which period.
        times: int64 [n], to hold out a group's last samples (ties by position); ``None`` for a random choice.
    """
    held = np.zeros(len(positions), dtype=np.bool_)
    for period in np.unique(periods):
        members = np.flatnonzero(periods == period)
        rng = generator(seed, purpose, int(period))
        _, group, sizes = np.unique(groups[members], return_inverse=True, return_counts=True)
        counts = np.floor(share * sizes + rng.random(len(sizes))).astype(np.int64)
        rank = rng.random(len(members)) if times is None else -times[members].astype(np.float64)
        order = np.lexsort((-members, rank, group))
        place = np.empty(len(members), dtype=np.int64)
        place[order] = np.arange(len(members)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        held[members[place < counts[group]]] = True
    return positions[~held], positions[held]
