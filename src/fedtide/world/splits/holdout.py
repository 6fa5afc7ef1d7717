"""Samples that are held out: by client and period without a look at the future, or by class."""

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
        positions: int64 [n], ascending. groups, periods: int64 [n], client (or label) and period of each sample.
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


def stratified_split(labels: Ints, positions: Ints, fraction: float, seed: int) -> tuple[Ints, Ints]:
    """Positions of the training and of the validation samples, split by class, each in the order of ``positions``.

    Of the n_c samples of class c, ``fraction * n_c`` are held out, 0 <= fraction < 1, rounded up or down such that the total
    is the rounded sum: largest remainders are rounded up, ties go to the lower class. A class with one sample counts as 0, and
    no class loses its last sample. ``labels`` are those of all samples, ``positions`` index the samples to split.
    """
    present = labels[positions]
    classes, counts = np.unique(present, return_counts=True)
    chosen = np.zeros(len(positions), dtype=bool)
    for label, take in zip(classes, _shares(counts, fraction), strict=True):
        members = np.flatnonzero(present == label)
        chosen[generator(seed, "validation", int(label)).permutation(members)[:take]] = True
    return positions[~chosen], positions[chosen]


def _shares(counts: Ints, fraction: float) -> Ints:
    exact = np.where(counts > 1, fraction * counts, 0.0)
    shares = np.floor(exact).astype(np.int64)
    missing = int(np.floor(exact.sum() + 0.5)) - int(shares.sum())
    remainders = np.where(shares + 1 < counts, exact - shares, 0.0)
    largest = np.argsort(-remainders, kind="stable")[:missing]
    shares[largest[remainders[largest] > 0]] += 1
    return shares
