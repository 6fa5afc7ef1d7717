"""The interface of executors."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from fedtide.training.engine.local import Cohort
from fedtide.training.resources.workers import Workers

Advance = Callable[[int], None]
"""Advances rows of a cohort in place until they have taken ``last`` local steps in total; between calls they may be changed."""


class Executor(ABC):
    """Advances cohorts by local steps."""

    @abstractmethod
    def begin(self, cohort: Cohort) -> Advance:
        """Set up the training of a cohort; nothing is trained yet."""


def stepwise(workers: Workers, pieces: Sequence[Iterator[None]], longest: int) -> Advance:
    """Training in pieces that the workers advance in parallel: iterators that take one local step per item.

    From ``longest`` steps on, all run to their end and free what they hold.
    """
    done = 0

    def advance(last: int) -> None:
        nonlocal done
        steps, done = None if last >= longest else last - done, last
        workers.map(lambda _, piece: deque(islice(piece, steps), maxlen=0), pieces)

    return advance
