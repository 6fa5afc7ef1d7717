"""Who is present in each session: arrival and departure patterns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.randomness import generator


def cycle(num_devices: int, groups: int, sessions: int) -> Iterator[Ints]:
    """Groups of ``num_devices`` consecutive ids take turns: the whole population changes at each boundary."""
    for session in range(sessions):
        yield session % groups * num_devices + np.arange(num_devices)


def markov(
    first: Ints, pool: int, sessions: int, p_leave: float, arrivals: int, min_devices: int, seed: int
) -> Iterator[Ints]:
    """Devices leave and arrive at random between sessions.

    At a boundary each present device leaves with probability ``p_leave``; if fewer than ``min_devices`` would remain, the
    leaving devices with the lowest ids stay. Then ``arrivals`` devices (or all, if there are fewer) arrive, drawn without
    replacement from those that were absent before the boundary.

    Args:
        first: int64 ids of the first session, ascending; at least ``min_devices``. pool: number of devices, ids 0..pool-1.
        sessions: their number. p_leave, arrivals, min_devices: as above.
        seed: world seed; a boundary's draw depends only on it and on the boundary's number.
    """
    present = first
    yield present
    for session in range(1, sessions):
        rng = generator(seed, "scenario.presence", session)
        leaves = rng.random(pool)[present] < p_leave
        missing = max(0, min_devices - int((~leaves).sum()))
        leaves[np.flatnonzero(leaves)[:missing]] = False
        absent = np.setdiff1d(np.arange(pool), present)
        arriving = rng.choice(absent, size=min(arrivals, len(absent)), replace=False)
        present = np.sort(np.concatenate([present[~leaves], arriving]))
        yield present
