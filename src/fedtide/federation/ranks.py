"""Several processes that share the clients of a round: each trains a block of rows, a sum combines them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtide.engine.executor import Advance, Executor
from fedtide.engine.local import Cohort


def _alone(_: Tensor) -> None:
    """Nothing to add up."""


def _all_reduce(tensor: Tensor) -> None:
    torch.distributed.all_reduce(tensor)


@dataclass(frozen=True)
class Ranks:
    """Rank and number of processes, and the in-place sum over them."""

    rank: int = 0
    size: int = 1
    sum_in_place: Callable[[Tensor], None] = _alone

    @staticmethod
    def of_process_group() -> Ranks:
        """The default process group, or a single process where there is none."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return Ranks()
        return Ranks(
            torch.distributed.get_rank(),
            torch.distributed.get_world_size(),
            _all_reduce,
        )

    def begin(self, executor: Executor, cohort: Cohort) -> Advance:
        """Training of this process's block of rows; all blocks are then summed over the processes."""
        if self.size == 1:
            return executor.begin(cohort)
        clients = len(cohort.plan.steps)
        block = range(self.rank * clients // self.size, (self.rank + 1) * clients // self.size)
        steps = [count if row in block else 0 for row, count in enumerate(cohort.plan.steps)]
        own = executor.begin(replace(cohort, plan=replace(cohort.plan, steps=steps)))
        rows = [cohort.W, cohort.buffers, cohort.losses, *cohort.memories, *cohort.moments.values()]

        def advance(last: int) -> None:
            own(last)
            for tensor in rows:
                tensor[: block.start] = 0
                tensor[block.stop :] = 0
                if tensor.numel():
                    self.sum_in_place(tensor)

        return advance
