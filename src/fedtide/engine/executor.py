"""The interface of executors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from fedtide.engine.local import Cohort
from fedtide.engine.workers import Workers

Advance = Callable[[int], None]
"""Takes the next local steps of every row of a cohort in place, until each has taken ``last`` in all.

A finished client's row stays as it is. Between two calls the rows may be changed.
"""


class Executor(ABC):
    """Advances cohorts by local steps."""

    @abstractmethod
    def begin(self, cohort: Cohort) -> Advance:
        """Set up the training of a cohort; nothing is trained yet."""

    @abstractmethod
    def describe(self) -> str:
        """How it works here, in a few words for the log."""


def stepwise(workers: Workers, pieces: Sequence[Iterator[None]], longest: int) -> Advance:
    """Training whose pieces (of a cohort) each take one local step when asked for the next item.

    Args:
        workers: take the pieces' steps up to ``last`` side by side.
        pieces: end after their own last step.
        longest: steps of the longest piece; with it, pieces run to their end and let go of what they hold.
    """
    done = 0

    def advance(last: int) -> None:
        nonlocal done
        steps, done = None if last >= longest else last - done, last
        workers.map(lambda _, piece: deque(islice(piece, steps), maxlen=0), pieces)

    return advance
