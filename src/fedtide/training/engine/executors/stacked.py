"""Executor for accelerators and tiny models: chunks of clients, each advanced as one batched program."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedtide.training.engine.executors.executor import Advance, Executor, stepwise
from fedtide.training.engine.executors.replay import replayed
from fedtide.training.engine.executors.rows import Rows
from fedtide.training.engine.gradient import Gradient
from fedtide.training.engine.local import Cohort
from fedtide.training.engine.task import TINY, Task
from fedtide.training.resources.memory import plan_chunk
from fedtide.training.resources.workers import Workers


class Stacked(Executor):
    """``vmap`` over the clients of a chunk; workers take chunks, finished rows are frozen."""

    def __init__(self, task: Task, workers: Workers, chunk: int = 0) -> None:
        self.task, self.workers, self.chunk = task, workers, chunk
        self.gradient = Gradient(task, batched=True)

    def begin(self, cohort: Cohort) -> Advance:
        clients = len(cohort.plan.steps)
        size, width = self.gradient.layout.size, cohort.plan.indices.shape[-1]
        # Only tiny models give the same bits however they are stacked, so only their chunks may depend on the workers.
        lanes = self.workers.count if size <= TINY else 1
        chunk = self.chunk or plan_chunk(size, clients, width, self.task, lanes)
        chunks = [self._chunk(cohort, slice(at, min(at + chunk, clients))) for at in range(0, clients, chunk)]
        return stepwise(self.workers, chunks, cohort.plan.longest)

    def _chunk(self, cohort: Cohort, rows: slice) -> Iterator[None]:
        plan, task, longest = cohort.plan, self.task, max(cohort.plan.steps[rows])
        if longest == 0:
            return
        training = Rows(cohort, rows, self.gradient)
        steps, shortest = torch.tensor(plan.steps[rows], device=task.device).unsqueeze(-1), min(plan.steps[rows])
        written = [training.w, *training.update.moments.values(), *(memory[rows] for memory in cohort.memories)]
        full = (plan.sizes[rows] == plan.indices.shape[-1]).all(0).tolist()
        sizes, columns = plan.sizes[rows].to(task.device), torch.arange(plan.indices.shape[-1], device=task.device)
        losses = cohort.losses[rows]

        def on_batch(indices: Tensor, keys: Tensor, keep: Tensor | None) -> Tensor:
            inputs, labels = task.batch(indices, keys)
            return training.step(inputs, labels, keep, keys)

        # A direction is an algorithm's own code, which may do something else at every step.
        take = on_batch if cohort.direction is not None else replayed(on_batch, task.device, longest)
        for step in range(longest):
            running = steps > step
            # A padded batch keeps the full width: a client's sums must not depend on the others in its chunk.
            keep = None if full[step] else columns < sizes[:, step : step + 1]
            before = [value.clone() for value in written] if step >= shortest else []
            value = take(plan.indices[rows, step], plan.keys[rows, step], keep)
            for after, old in zip(written if before else [], before, strict=True):
                after.copy_(torch.where(running, after, old))
            losses += torch.where(running[:, 0], value, 0.0)
            if stopped := _stopped(cohort, rows, step):
                steps[stopped] = shortest = step + 1
                if shortest >= steps.max():
                    return
            yield


def _stopped(cohort: Cohort, rows: slice, step: int) -> list[int]:
    """The rows of a chunk, from 0, that a step was the last of before the end of their plan."""
    stop = cohort.stop
    if stop is None:
        return []
    running = [row for row in range(rows.start, rows.stop) if cohort.plan.steps[row] > step]
    return [row - rows.start for row in running if stop(row, step + 1, cohort.W[row], cohort.buffers[row])]
