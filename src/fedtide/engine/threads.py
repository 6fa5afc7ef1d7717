"""Executor for CPUs: clients dealt to worker threads, one at a time per worker."""

from __future__ import annotations

import torch

from fedtide.engine.executor import Executor
from fedtide.engine.gradient import Gradient
from fedtide.engine.local import Cohort
from fedtide.engine.rows import Rows
from fedtide.engine.task import Task
from fedtide.engine.workers import Workers

_WIDTHS = 4
"""Short batches are padded to one of so many widths, so that few programs are traced."""


class Threads(Executor):
    """One client at a time per worker; its row of the cohort matrix is trained in place by a traced program."""

    def __init__(self, task: Task, workers: Workers) -> None:
        self.task, self.workers = task, workers
        self.gradient = Gradient(task, batched=False)

    def advance(self, cohort: Cohort, first: int, last: int) -> None:
        """See :meth:`Executor.advance`."""
        busy = [row for row, steps in enumerate(cohort.plan.steps) if steps > first]
        self.workers.map(lambda _, row: self._client(cohort, row, first, last), busy)

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return f"threads, {self.workers.count} clients at a time"

    def _client(self, cohort: Cohort, row: int, first: int, last: int) -> None:
        task, plan = self.task, cohort.plan
        training = Rows(cohort, slice(row, row + 1), self.gradient)
        grain = -(-plan.indices.shape[-1] // _WIDTHS)
        sizes = plan.sizes[row].tolist()
        total = torch.zeros((), dtype=task.dtype, device=task.device)
        for step in range(first, min(last, plan.steps[row])):
            size, key = sizes[step], plan.keys[row, step]
            width = min(plan.indices.shape[-1], -(-size // grain) * grain)
            inputs, labels = task.batch(plan.indices[row, step, :width], key)
            keep = None if width == size else torch.arange(width, device=task.device) < size
            total += training.step(inputs, labels, keep, key)
        cohort.losses[row] += total
