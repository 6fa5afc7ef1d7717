"""The interface of executors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from fedtide.training.engine.local import Cohort
from fedtide.training.resources.workers import Workers

Advance = Callable[[int], None]
"""Advances every row of a cohort in place until it has taken ``last`` local steps in total.

Rows of finished clients stay as they are. The caller may change rows between two calls.
"""


class Executor(ABC):
    """Advances cohorts by local steps."""

    @abstractmethod
    def begin(self, cohort: Cohort) -> Advance:
        """Set up the training of a cohort; nothing is trained yet."""

    @abstractmethod
    def describe(self) -> str:
        """How this executor works, in a few words for the log."""


def stepwise(workers: Workers, pieces: Sequence[Iterator[None]], longest: int) -> Advance:
    """Training of a cohort in pieces, which the workers advance in parallel: iterators that take one local step per item.

    From ``longest`` steps on, those of the longest piece, all run to their end and free what they hold.
    """
    done = 0

    def advance(last: int) -> None:
        nonlocal done
        steps, done = None if last >= longest else last - done, last
        workers.map(lambda _, piece: deque(islice(piece, steps), maxlen=0), pieces)

    return advance
