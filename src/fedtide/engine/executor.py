"""The interface of executors and the rule that chooses one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch

from fedtide.engine.local import Cohort
from fedtide.engine.memory import TINY
from fedtide.engine.task import Task
from fedtide.engine.workers import Workers
from fedtide.errors import SettingsError
from fedtide.settings import EngineSettings

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


def choose(task: Task, engine: EngineSettings, family: str) -> str:
    """Name of the executor for a task: a fixed rule on (model family, size, device), never a timing.

    ``stacked`` on an accelerator and for tiny linear models and perceptrons, ``threads`` otherwise; ``resident`` for
    networks with floating buffers (BatchNorm), whose batches cannot be padded.

    Raises:
        SettingsError: ``stacked`` is asked for a network with floating buffers.
    """
    floating = any(value.is_floating_point() for value in task.network.buffers())
    if engine.executor == "stacked" and floating:
        raise SettingsError(
            "engine.executor = 'stacked': the model has BatchNorm statistics; use 'threads' or norm: group"
        )
    if floating:
        return "resident"
    if engine.executor != "auto":
        return engine.executor
    size = sum(value.numel() for value in task.network.parameters())
    tiny = family in ("linear", "mlp") and size <= TINY
    return "stacked" if tiny or task.device.type != "cpu" else "threads"


def image_layout(engine: EngineSettings, channels_last: bool, device: torch.device) -> torch.memory_format:
    """Memory layout of image batches: as asked for, else what the model declares for a CPU (``vmap`` undoes it)."""
    if engine.layout == "auto":
        preferred = channels_last and device.type == "cpu" and engine.executor != "stacked"
        return torch.channels_last if preferred else torch.contiguous_format
    return torch.channels_last if engine.layout == "channels_last" else torch.contiguous_format


def make(task: Task, workers: Workers, engine: EngineSettings, family: str) -> Executor:
    """The executor of a run."""
    from fedtide.engine.resident import Resident
    from fedtide.engine.stacked import Stacked
    from fedtide.engine.threads import Threads

    name = choose(task, engine, family)
    if name == "stacked":
        return Stacked(task, workers, engine.chunk)
    return Resident(task, workers) if name == "resident" else Threads(task, workers)
