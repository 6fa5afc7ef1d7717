"""Executor for accelerators and tiny models: chunks of clients, each advanced as one batched program."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor, nn

from fedtide.core.array_types import Ints
from fedtide.training.engine.executors import replay
from fedtide.training.engine.executors.executor import Advance, Executor, stepwise
from fedtide.training.engine.executors.rows import Rows
from fedtide.training.engine.executors.static_step import StaticStep, form
from fedtide.training.engine.gradient import Gradient
from fedtide.training.engine.local import Cohort
from fedtide.training.engine.optimizers import Coefficient
from fedtide.training.engine.task import TINY, Task
from fedtide.training.resources.memory import plan_chunk
from fedtide.training.resources.workers import Workers

_AHEAD = 1 << 18
"""Samples in batches whose positions are laid out together."""
_FORMS = 4
"""Recorded steps that are kept: the latest, of cohorts or phases in turn."""
_UNEQUAL = 4
"""Steps of rows, ended ones among them, for one that a client takes, from which a chunk may be taken apart."""
_CALL, _LAUNCH = 32, 1024
"""Rows of a tiny model whose gradients take as long as all else of a step, on a CPU and on a GPU."""
Piece = tuple[slice, range, Ints]
"""Rows of a cohort, the local steps in which they are advanced together, and after how many each row ends, [c].

The pieces of a chunk share this array, which is changed where rows stop early.
"""
STREAMS = 16
"""Networks with convolutions up to which a stream each is faster than grouped convolutions: ten take 3.1 ms instead of 3.9 (two
5x5 layers), 2.5 instead of 3.1 (LeNet) and 4.6 instead of 8.0 (four 3x3 layers) on an H200; of fifty no more than some ten are
computed at a time."""


class Stacked(Executor):
    """``vmap`` over the clients of a chunk; workers take chunks, finished rows are frozen.

    On a GPU local steps are recorded once for all rounds of the same form.
    """

    def __init__(self, task: Task, workers: Workers, chunk: int = 0) -> None:
        self.task, self.workers, self.chunk = task, workers, chunk
        self.gradient = Gradient(task, batched=True)
        convolves = any(isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d) for part in task.network.modules())
        self._alone = Gradient(task, batched=False) if convolves and replay.can_record(task.device) else None
        self._planned: dict[tuple[int, int], int] = {}
        self._static = OrderedDict[Hashable, StaticStep]()

    def begin(self, cohort: Cohort) -> Advance:
        clients, size, width = len(cohort.plan.steps), self.gradient.layout.size, cohort.plan.width
        # Only tiny models give the same bits however they are stacked, so only their chunks may depend on the workers.
        lanes = self.workers.count if size <= TINY else 1
        chunk = self.chunk or self._planned.get((clients, width)) or plan_chunk(size, clients, width, self.task, lanes)
        self._planned[clients, width] = chunk  # recorded steps take memory that was free before
        chunks = [slice(at, min(at + chunk, clients)) for at in range(0, clients, chunk)]
        # A direction is an algorithm's own code, which may do something else at every step.
        if replay.can_record(self.task.device) and cohort.direction is None:
            return self._replayed(cohort, chunks)
        return stepwise(self.workers, [self._chunk(cohort, rows) for rows in chunks], cohort.plan.longest)

    def _chunk(self, cohort: Cohort, rows: slice) -> Iterator[None]:
        together, *alone = self._pieces(cohort, rows)
        yield from self._piece(cohort, *together)
        for _ in zip_longest(*(self._piece(cohort, *piece) for piece in alone)):
            yield

    def _pieces(self, cohort: Cohort, rows: slice) -> list[Piece]:
        """All rows of a chunk until few are left that take many more steps than the others; then each of these alone."""
        planned, ends = cohort.plan.planned[rows], np.array(cohort.plan.steps[rows], dtype=np.int64)
        last = int(planned.max())
        if len(planned) * last > _UNEQUAL * planned.sum():
            call = _CALL if self.task.device.type == "cpu" else _LAUNCH
            few = (call + len(planned)) // (call + 1)  # who take as long one by one as all together
            last = int(np.sort(planned)[-1 - few])
        found = [(rows, range(min(last, ends.max())), ends)]
        for row in np.flatnonzero(ends > last).tolist():
            one = slice(rows.start + row, rows.start + row + 1)
            found.append((one, range(last, ends[row]), ends[row : row + 1]))
        return found

    def _piece(self, cohort: Cohort, rows: slice, span: range, ends: Ints) -> Iterator[None]:
        if not span or ends.max() <= span.start:  # all have stopped
            return
        plan, task, shortest = cohort.plan, self.task, int(ends.min())
        steps = torch.from_numpy(ends).to(task.device).unsqueeze(-1)
        training = Rows(cohort, rows, self.gradient)
        written = [training.w, *training.update.moments.values(), *(memory[rows] for memory in cohort.memories)]
        columns, losses = torch.arange(plan.width, device=task.device), cohort.losses[rows]
        ahead = max(1, _AHEAD // (len(steps) * plan.width))
        for first in range(span.start, span.stop, ahead):
            indices, sizes, keys, full = plan.window(rows, range(first, min(first + ahead, span.stop)))
            for place, complete in enumerate(full):
                step, key = first + place, keys[:, place]
                running = steps > step
                # A padded batch keeps the full width: a client's sums must not depend on the others in its chunk.
                keep = None if complete else columns < sizes[:, place : place + 1]
                before = [value.clone() for value in written] if step >= shortest else []
                value = training.step(*task.batch(indices[:, place], key), keep, key)
                for after, old in zip(written if before else [], before, strict=True):
                    after.copy_(torch.where(running, after, old))
                losses += torch.where(running[:, 0], value, 0.0)
                if stopped := _stopped(cohort, rows, step):
                    steps[stopped] = shortest = step + 1
                    ends[stopped] = step + 1
                    if shortest >= ends.max():
                        return
                yield

    def _replayed(self, cohort: Cohort, chunks: list[slice]) -> Advance:
        """Training whose steps are recorded."""
        cohort = _in_columns(cohort, self.task)
        chunked = [piece for rows in chunks for piece in self._pieces(cohort, rows)]
        pieces = [(rows, self._lanes(cohort, rows), span, ends) for rows, span, ends in chunked]
        done = 0

        def advance(last: int) -> None:
            nonlocal done
            for rows, lanes, span, ends in pieces:
                if steps := range(max(done, span.start), min(last, span.stop, ends.max())):
                    self._replay(cohort, rows, lanes, ends, steps)
            done = last

        return advance

    def _lanes(self, cohort: Cohort, rows: slice) -> list[Rows]:
        """What is advanced in a stream of its own."""
        if self._alone is None or rows.stop - rows.start > STREAMS:
            return [Rows(cohort, rows, self.gradient)]
        return [Rows(cohort, slice(row, row + 1), self._alone) for row in range(rows.start, rows.stop)]

    def _replay(self, cohort: Cohort, rows: slice, lanes: list[Rows], ends: Ints, steps: range) -> None:
        """Some local steps of a piece, whose ``ends`` are changed where rows stop early."""
        key = form(lanes, cohort)
        if key not in self._static:
            self._static[key] = StaticStep(self.task, lanes, cohort, rows)
        self._static.move_to_end(key)
        while len(self._static) > _FORMS:
            self._static.popitem(last=False)
        static = self._static[key]
        static.load(lanes, cohort, rows, ends, steps.start)
        for step in steps:
            static.step(step, uneven=step >= ends.min())
            if cohort.stop is None:
                continue
            static.store(lanes, cohort, rows)
            if stopped := _stopped(cohort, rows, step):
                ends[stopped] = step + 1
                static.ended(stopped)
                if step + 1 >= ends.max():
                    return
        static.store(lanes, cohort, rows)


def _in_columns(cohort: Cohort, task: Task) -> Cohort:
    """Numbers that may change from round to round as columns [C, 1]: recorded, a number would hold for its round only."""

    def column(value: Coefficient) -> Tensor:
        if isinstance(value, Tensor):
            return value
        return torch.full((len(cohort.W), 1), value, dtype=cohort.W.dtype, device=cohort.W.device)

    added, local = cohort.added, task.local
    numbers = {name: getattr(added, name) for name in ("pull", "scale", "decay", "lr_scale")}
    columns = {name: column(value) for name, value in numbers.items() if value is not None}
    rate = cohort.lr if local.schedule == "constant" and not local.warmup else column(cohort.lr)
    return replace(cohort, lr=rate, added=replace(added, **columns))


def _stopped(cohort: Cohort, rows: slice, step: int) -> list[int]:
    """The rows of a chunk, from 0, that a step was the last of before the end of their plan."""
    stop = cohort.stop
    if stop is None:
        return []
    running = [row for row in range(rows.start, rows.stop) if cohort.plan.steps[row] > step]
    return [row - rows.start for row in running if stop(row, step + 1, cohort.W[row], cohort.buffers[row])]
