"""What a participation plug-in provides: which of the present clients are drawn in a round."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from fedtide.core.array_types import Floats, Ints
from fedtide.core.plugins import Plugin
from fedtide.core.randomness import generator
from fedtide.world.timeline import Timeline


def coins(present: Ints, round_: int, seed: int, attempt: int = 0) -> Floats:
    """One uniform number in [0, 1) per present client, independent of who else is present."""
    uniform: Floats = generator(seed, "participation", round_, attempt).random(int(present[-1]) + 1)
    return uniform if len(present) == len(uniform) else uniform[present]


def smallest(uniform: Floats, count: int) -> Ints:
    """Positions of the ``count`` smallest of independent uniform numbers in [0, 1), ascending; of equal ones the first."""
    # Few enough to sort, and at least ``count`` but with a probability around 1e-15.
    candidates = np.flatnonzero(uniform < (count + 8 * count**0.5 + 40) / max(1, len(uniform)))
    if len(candidates) < count:
        candidates = np.arange(len(uniform))
    order = np.argsort(uniform[candidates], kind="stable")[:count]
    return np.sort(candidates[order])


class Participation(Plugin):
    """A pure function of (seed, round, present) and the world: the same cohorts for every algorithm."""

    kind: ClassVar[str] = "participation"

    @property
    def private(self) -> bool:
        """Whether who takes part says nothing of the clients' data, as client-level privacy needs."""
        return False

    @property
    def rate(self) -> float | None:
        """Probability with which each client joins a Poisson sample, by a draw of its own; None under other rules."""
        return None

    def bind(self, timeline: Timeline, labels: Ints, seed: int) -> None:
        """Receive the run's timeline, the labels int64 [n] of its training set and its seed, before any draw.

        A rule that does not suit them raises a SettingsError.
        """

    @abstractmethod
    def draw(self, present: Ints, round_: int, seed: int) -> Ints:
        """Positions into ``present`` (ascending, at least one) of the clients that take part in ``round_``.

        On a GPU it is called in a thread, while the round before is trained; never twice at a time.

        Args:
            present: int64 [K], ids of the clients that are present and hold data, ascending.
            round_: 0-based round.
            seed: the run's seed; draws use ``generator(seed, "participation", round_, ...)``.
        """

    @abstractmethod
    def participation_fraction(self, present: int) -> float:
        """Expected share of ``present`` clients drawn in one round (FedSSG's p)."""
