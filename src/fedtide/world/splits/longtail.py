"""Long-tailed thinning of a training set (Cao et al. 2019, LDAM; the exponential profile)."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator

Mode = Literal["clip", "feasible"]


def thin(
    labels: Ints, imbalance: float, mode: Mode = "clip", order: Sequence[int] | None = None, seed: int = 0
) -> Ints:
    """Positions of the ``n_c = floor(n_max * imbalance ** (c / (C - 1)))`` samples kept of the class at rank c = 0..C-1.

    Each class keeps the front of a seeded permutation, so with one seed a stronger thinning keeps a subset of a weaker one.

    Args:
        labels: int64 [N] labels, 0..C-1.
        imbalance: IF = n_min / n_max, in (0, 1].
        mode: ``clip`` takes n_max = N / C (not rounded), and keeps ``min(n_c, available)`` where a class has fewer than n_c
            samples; ``feasible`` takes the largest integer n_max at which every class has enough, so the profile is exact.
        order: the class at each rank, most frequent first; by default 0, 1, ..., C-1.

    Raises:
        SettingsError: ``order`` is not a permutation of the classes, or nothing is left.
    """
    available = np.bincount(labels)
    ranks = np.arange(len(available)) if order is None else np.asarray(order, dtype=np.int64)
    if not np.array_equal(np.sort(ranks), np.arange(len(available))):
        raise SettingsError(
            f"long_tail.order = {tuple(ranks.tolist())}: should list each class 0..{len(available) - 1} once"
        )
    ranked = available[ranks]
    if mode == "clip":
        kept = np.minimum(_profile(len(labels) / len(available), imbalance, len(ranked)), ranked)
    else:
        heads = range(int(ranked[0]) + 1)
        too_many = bisect_left(
            heads, True, key=lambda head: bool((_profile(head, imbalance, len(ranked)) > ranked).any())
        )
        kept = _profile(too_many - 1, imbalance, len(ranked))
    if kept.sum() == 0:
        raise SettingsError(
            f"long_tail.imbalance = {imbalance}, mode = {mode}: no sample remains; raise long_tail.imbalance"
        )
    parts = [
        generator(seed, "longtail", int(label)).permutation(np.flatnonzero(labels == label))[:count]
        for label, count in zip(ranks, kept, strict=True)
    ]
    return np.sort(np.concatenate(parts))


def _profile(head: float, imbalance: float, classes: int) -> Ints:
    # Python's power: the last digit of NumPy's depends on the processor, and with it the floor
    shares = (imbalance ** (rank / max(classes - 1, 1)) for rank in range(classes))
    return np.array([math.floor(head * share) for share in shares], dtype=np.int64)
