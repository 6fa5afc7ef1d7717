"""Seconds per round of competitors that take turns, the memory each needs alone, and what a GPU does meanwhile."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import lightning as L
import torch
from torch.profiler import ProfilerActivity, profile

WARM = 1  # rounds at the start of a segment that are not timed: caches, allocators and threads settle
EXTRA = WARM + 1  # the last round is not timed either: it evaluates and saves the state


class Times(NamedTuple):
    """Seconds: on the wall, and of this process on all processors together."""

    wall: float
    processor: float


class RoundClock(L.Callback):
    """Notes when each round is over, whatever runs it. Give it to the trainer last."""

    def __init__(self) -> None:
        self.ends: list[Times] = []

    def tick(self) -> None:
        """A round is over."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(Times(time.perf_counter(), time.process_time()))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """A round is over."""
        self.tick()

    @property
    def seconds(self) -> Times:
        """Means of the timed rounds; means, because some costs come only every few rounds."""
        timed = self.ends[WARM - 1 : -1]
        wall, processor = ((last - first) / (len(timed) - 1) for first, last in zip(timed[0], timed[-1], strict=True))
        return Times(wall, processor)


Segment = Callable[[RoundClock], None]
"""Runs some rounds from the start and lets the clock tick after each."""


def take_turns(competitors: Mapping[str, Segment], turns: int) -> dict[str, list[Times]]:
    """Seconds per round of every competitor, once per turn: A B C A B C ..., so that all meet the same disturbances."""
    found: dict[str, list[Times]] = {name: [] for name in competitors}
    for _ in range(turns):
        for name, segment in competitors.items():
            clock = RoundClock()
            segment(clock)
            found[name].append(clock.seconds)
    return found


@dataclass(frozen=True)
class Ratio:
    """How two competitors compare: the median over the turns, and its range."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(numerator: Iterable[float], denominator: Iterable[float]) -> Ratio:
        """Ratios turn by turn."""
        ratios = [a / b for a, b in zip(numerator, denominator, strict=True)]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios))


@contextmanager
def counted_graphs() -> Iterator[dict[str, int]]:
    """How many CUDA graphs are recorded and replayed meanwhile; nothing without a card."""
    counts: dict[str, int] = {}
    if not torch.cuda.is_available():
        yield counts
        return
    with ExitStack() as stack:
        for key, method in (("recorded", "capture_begin"), ("replayed", "replay")):
            counts[key] = 0
            original = getattr(torch.cuda.CUDAGraph, method)

            def counting(*args: Any, _key: str = key, _call: Any = original, **kwargs: Any) -> Any:
                counts[_key] += 1
                return _call(*args, **kwargs)

            stack.enter_context(patch.object(torch.cuda.CUDAGraph, method, counting))
        yield counts


def kernel_milliseconds(go: Callable[[int], None]) -> float:
    """Milliseconds that the kernels of a round take together."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        go(2)
    return float(sum(event.self_device_time_total for event in recorded.key_averages())) / 2000


def peak_bytes(function: Callable[..., None], *args: Any) -> dict[str, int]:
    """Largest memory of a process that calls ``function(*args)`` and does nothing else.

    Returns:
        ``host`` bytes, and ``cuda`` bytes where there is a card.
    """
    # A process that is forked from a small server; a spawned one would inherit the peak of this process.
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_peak, function, args).result()


def _peak(function: Callable[..., None], args: tuple[Any, ...]) -> dict[str, int]:
    function(*args)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    if torch.cuda.is_available():
        peak["cuda"] = torch.cuda.max_memory_allocated()
    return peak
