"""Early stop: local training that a client ends by its own loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

StopRule = Callable[[int, float, float], bool]
"""(local epoch, from 2 on; loss after the one before; loss after it) -> whether the client stops."""


class EarlyStop:
    """Where each row of a cohort stops; executors ask after every local step of a row.

    Rows do not affect each other, so they may be asked in parallel.

    Args:
        rule: whether a client stops. ends: of each row, the local steps after which its epochs end, ascending, the last those
            of all its training; empty for a row that does not train.
        loss: of a row with parameters [d] and buffers [q].

    Attributes:
        steps: local steps of each row, as planned until it stops.
    """

    def __init__(
        self, rule: StopRule, ends: Sequence[Sequence[int]], loss: Callable[[int, Tensor, Tensor], float]
    ) -> None:
        self._rule, self._loss = rule, loss
        self._epochs = [{step: epoch for epoch, step in enumerate(row, 1)} for row in ends]
        self._losses = [0.0] * len(ends)
        self.steps = [row[-1] if row else 0 for row in ends]

    def __call__(self, row: int, step: int, w: Tensor, b: Tensor) -> bool:
        """Whether a row, at parameters ``w`` [d] and buffers ``b`` [q] after so many steps, takes no more."""
        epoch = self._epochs[row].get(step)
        if epoch is None or step >= self.steps[row]:
            return False
        before, now = self._losses[row], self._loss(row, w, b)
        self._losses[row] = now
        if epoch == 1 or not self._rule(epoch, before, now):
            return False
        self.steps[row] = step
        return True
