"""Executor for CPUs: worker threads, each training one client at a time."""

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from fedtide.training.engine.executors.executor import Advance, Executor, stepwise
from fedtide.training.engine.executors.rows import Rows
from fedtide.training.engine.gradient import Gradient
from fedtide.training.engine.local import Cohort
from fedtide.training.engine.task import Task
from fedtide.training.resources.workers import Workers

_WIDTHS = 4  # short batches are padded to one of this many widths, so that few programs are traced
_TOGETHER = 1 << 19
"""Numbers in batches that are prepared together: small batches share the call overhead, and all fit a core's cache."""

_WAITING = 1 << 25
"""Most numbers in the prepared batches of all clients, which are held while clients average inside a round."""


class Threads(Executor):
    """One client at a time per worker; its row of the cohort matrix is trained in place by a traced program."""

    def __init__(self, task: Task, workers: Workers) -> None:
        self.task, self.workers = task, workers
        self.gradient = Gradient(task, batched=False)

    def begin(self, cohort: Cohort) -> Advance:
        busy = [self._client(cohort, row) for row, steps in enumerate(cohort.plan.steps) if steps > 0]
        return stepwise(self.workers, busy, cohort.plan.longest)

    def _client(self, cohort: Cohort, row: int) -> Iterator[None]:
        task, plan, stop, loss = self.task, cohort.plan, cohort.stop, cohort.losses[row]
        training = Rows(cohort, slice(row, row + 1), self.gradient)
        grain = -(-plan.width // _WIDTHS)
        samples, sizes = plan.of(row)
        keys = plan.keys[plan.first[row] :]
        places = training.look_ahead(samples)
        together = min(_TOGETHER, _WAITING // len(plan.steps)) // math.prod(task.data.input_shape)
        end = 0
        widths = {size: min(plan.width, -(-size // grain) * grain) for size in set(sizes)}
        for steps in _runs(sizes, widths, together):
            size = sizes[steps[0]]
            width = widths[size]
            begin, end = end, end + size * len(steps)
            batches = task.batch(_padded(samples[begin:end], size, width), keys[steps[0] : steps[-1] + 1])
            seen = [None] * len(steps) if places is None else _padded(places[begin:end], size, width)
            keep = None if width == size else torch.arange(width, device=task.device) < size
            for step, inputs, labels, place in zip(steps, *batches, seen, strict=True):
                loss += training.step(inputs, labels, keep, keys[step], place)
                if stop is not None and stop(row, step + 1, training.w[0], cohort.buffers[row]):
                    return
                yield


def _padded(samples: Tensor, size: int, width: int) -> Tensor:
    """Batches of ``size`` as rows of a width, zeros at their ends."""
    return functional.pad(samples.view(-1, size), (0, width - size))


def _runs(sizes: list[int], widths: dict[int, int], together: int) -> Iterator[list[int]]:
    """Runs of consecutive steps whose batches have one size, with padding at most ``together`` samples long."""
    for size, same in itertools.groupby(range(len(sizes)), sizes.__getitem__):
        steps, most = list(same), max(1, together // widths[size])
        yield from (steps[at : at + most] for at in range(0, len(steps), most))
