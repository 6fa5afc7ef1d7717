"""How many local steps were clipped."""

from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch

from fedtide.training.engine import local
from fedtide.training.engine.executors.rows import Rows


class ClippedSteps:
    """Counts clipped steps of clients that are still in training; finished rows of a stacked chunk do not count."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._count = 0
        left: WeakKeyDictionary[Rows, torch.Tensor] = WeakKeyDictionary()
        in_training = torch.zeros(0, dtype=torch.bool)
        begin, step, clip = Rows.__init__, Rows.step, local.clip

        def counting_begin(rows: Rows, cohort: local.Cohort, taken: slice, *others: Any) -> None:
            begin(rows, cohort, taken, *others)
            left[rows] = torch.tensor(cohort.plan.steps[taken])

        def counting_step(rows: Rows, *batch: Any) -> torch.Tensor:
            nonlocal in_training
            in_training = left[rows] > 0
            left[rows] -= 1
            return step(rows, *batch)

        def counting_clip(v: torch.Tensor, limit: float) -> None:
            self._count += int((in_training & (torch.linalg.vector_norm(v, dim=-1) + 1e-6 > limit)).sum())
            clip(v, limit)

        patch.setattr(Rows, "__init__", counting_begin)
        patch.setattr(Rows, "step", counting_step)
        patch.setattr(local, "clip", counting_clip)

    def since_last(self) -> int:
        """Clipped steps since the last call."""
        count, self._count = self._count, 0
        return count
