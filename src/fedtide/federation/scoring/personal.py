"""What a few local steps make of the global model on each client's own data."""

from __future__ import annotations

import torch

from fedtide.engine.local import Cohort, Local
from fedtide.engine.optimisers import optimiser
from fedtide.engine.passes.evaluation import Scores, evaluate_each
from fedtide.engine.plan import plan_batches
from fedtide.federation.parts import Parts
from fedtide.federation.round import RoundResult
from fedtide.world.timeline import Ints


def personal_scores(parts: Parts, result: RoundResult, t: int, lr: float, tested: list[Ints]) -> list[Scores]:
    """Scores of the global model after ``evaluation.personalise`` plain local steps of every client present.

    Each client trains a copy of the round's global model on its training samples with the run's local settings and objective
    and the round's learning rate, without the algorithm's terms, corrections and memories. The copies are thrown away, nothing
    is charged, and the draws have their own keys, so that training is the same with and without. Cohorts are as large as that
    of the round, which bounds the memory. A client without training samples keeps the global model.

    Args:
        parts: of the run. result: of the round. t: round (0-based). lr: its learning rate.
        tested: positions of the samples that each client present is evaluated on.

    Returns:
        Per class, in the order of the clients present.
    """
    evaluation, timeline = parts.settings.evaluation, parts.timeline
    clients, shards, sizes = timeline.at(t).clients.tolist(), timeline.shards_at(t), timeline.sizes_at(t)
    local = parts.settings.local.model_copy(update={"amount": evaluation.personalise, "unit": "steps"})
    samples, size = parts.split(evaluation.splits[0]), len(result.members[0])
    scores: list[Scores] = []
    for start in range(0, len(clients), size):
        part = slice(start, start + size)
        keys = parts.settings.seed, "personalise", (t,), parts.device, parts.labels
        plan = plan_batches(shards[part], clients[part], local, float(sizes.mean()), *keys)
        count = len(plan.steps)
        W, buffers = result.w.expand(count, -1).clone(), result.b.expand(count, -1).clone()
        cohort = Cohort(
            W=W,
            buffers=buffers,
            moments=optimiser(local).at_rest(W),
            b=result.b,
            plan=plan,
            label_counts=parts.label_counts(shards[part]).to(W),
            lr=lr,
            added=Local(),
            terms=[],
            direction=None,
            memories=[],
            losses=torch.zeros(count, dtype=W.dtype, device=W.device),
        )
        parts.executor.begin(cohort)(plan.longest)
        scores += evaluate_each(parts.workers, W, buffers, *samples, tested[part], evaluation.batch_size)
    return scores
