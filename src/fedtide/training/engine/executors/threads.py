"""Executor for CPUs: worker threads, each training one client at a time."""

import itertools
import math
from collections.abc import Iterator

import torch

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
        grain = -(-plan.indices.shape[-1] // _WIDTHS)
        sizes = plan.sizes[row].tolist()[: plan.steps[row]]
        widths = [min(plan.indices.shape[-1], -(-size // grain) * grain) for size in sizes]
        places = training.look_ahead(plan.indices[row, : len(sizes)], sizes)
        together = min(_TOGETHER, _WAITING // len(plan.steps)) // math.prod(task.data.input_shape)
        for steps in _runs(widths, together):
            run, width = slice(steps[0], steps[-1] + 1), widths[steps[0]]
            batches = task.batch(plan.indices[row, run, :width], plan.keys[row, run])
            for step, inputs, labels in zip(steps, *batches, strict=True):
                keep = None if width == sizes[step] else torch.arange(width, device=task.device) < sizes[step]
                place = None if places is None else places[step, :width]
                loss += training.step(inputs, labels, keep, plan.keys[row, step], place)
                if stop is not None and stop(row, step + 1, training.w[0], cohort.buffers[row]):
                    return
                yield


def _runs(widths: list[int], together: int) -> Iterator[list[int]]:
    """Runs of consecutive steps whose batches have one width, at most ``together`` samples long."""
    for width, same in itertools.groupby(range(len(widths)), widths.__getitem__):
        steps, most = list(same), max(1, together // width)
        yield from (steps[at : at + most] for at in range(0, len(steps), most))
