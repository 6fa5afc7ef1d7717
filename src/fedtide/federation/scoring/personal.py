"""What a few local steps make of the global model on each client's own data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues
from fedtide.federation.types import RunState
from fedtide.settings.run import RunSettings
from fedtide.training.engine.executors.executor import Executor
from fedtide.training.engine.local import Cohort, Local
from fedtide.training.engine.optimizers import optimizer
from fedtide.training.engine.passes.evaluation import Scores
from fedtide.training.engine.plan import plan_batches

Start = Callable[[slice], ModelValues]
"""Models [c, d] and floating buffers [c, q] of some of the clients present, by place."""


@dataclass(frozen=True)
class Personal:
    """Plain local steps of every client present, ``evaluation.finetune_steps`` of them.

    Each client trains a copy of the model that it is served on its training samples with the run's local settings and
    objective, without the algorithm's terms, corrections and memories; all of it or the part
    ``evaluation.finetune_part``. The copies are thrown away, nothing
    is charged, and the draws have their own keys, so that training is the same with and without. Cohorts are as large as that
    of the round, which bounds the memory. A client without training samples keeps its model.

    Attributes:
        trains: bool [d], the parameters that are trained, None for all. lr: their learning rate, None for that of the round.
    """

    settings: RunSettings
    evaluator: Evaluator
    executor: Executor
    trains: Tensor | None
    lr: float | None

    def scores(
        self, state: RunState, t: int, size: int, lr: float, tested: list[Ints], start: Start | None = None
    ) -> list[Scores]:
        """Scores per class after these steps, of the clients present in order, each on the samples ``tested``.

        ``size`` clients are trained at a time. ``start`` gives their own models; without it all start from the global one.
        """
        evaluator, timeline, data = self.evaluator, self.evaluator.timeline, self.evaluator.data
        clients, shards, sizes = timeline.at(t).clients.tolist(), timeline.shards_at(t), timeline.sizes_at(t)
        local = self.settings.local.with_work(self.settings.evaluation.finetune_steps, "steps")
        scores: list[Scores] = []
        for first in range(0, len(clients), size):
            some = slice(first, first + size)
            keys = self.settings.seed, "personalise", (t,), state.w.device, data.classes
            plan = plan_batches(shards[some], clients[some], local, float(sizes.mean()), *keys)
            count = len(plan.steps)
            shared = state.w.expand(count, -1), state.b.expand(count, -1)
            W, buffers = (rows.clone() for rows in (start(some) if start else shared))
            cohort = Cohort(
                W=W,
                buffers=buffers,
                moments=optimizer(local).at_rest(W),
                b=state.b,
                plan=plan,
                label_counts=data.label_counts(shards[some]).to(W),
                lr=lr if self.lr is None else self.lr,
                added=Local(),
                losses=torch.zeros(count, dtype=W.dtype, device=W.device),
                trains=self.trains,
            )
            self.executor.begin(cohort)(plan.longest)
            scores += evaluator.each((W, buffers), range(count), tested[some])
        return scores
