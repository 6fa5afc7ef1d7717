"""Loss of the broadcast model on each participant's data and on all data, recorded before training."""

from __future__ import annotations

import numpy as np
import torch

from fedtide.engine.passes.evaluation import evaluate
from fedtide.engine.passes.fit import fit
from fedtide.federation.plan import RoundPlan
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues


def consistency(evaluator: Evaluator, model: ModelValues, plan: RoundPlan) -> dict[str, list[float]]:
    """Columns of ``clients.csv``, one value per participant (Zhou et al. 2025, Fig. 2, shows their changes).

    ``client``; ``local_loss``, mean cross-entropy (or another task's loss) of the model over the participant's training
    samples; ``global_loss``, over those of all clients present, the same for all participants of a round. This takes a forward
    pass over all samples and does not affect training.
    """
    timeline, workers, batch = evaluator.timeline, evaluator.workers, evaluator.batch
    shards = timeline.shards_at(plan.t)
    owners = evaluator.on_device(np.repeat(timeline.at(plan.t).clients, [len(shard) for shard in shards]))
    samples = evaluator.training_samples(shards)
    if evaluator.data.task == "classification":
        scores = evaluate(workers, *model, *samples, batch, groups=owners)
        total, count, mean = scores.loss, scores.count, scores.mean_loss()
    else:
        found = fit(workers, *model, *samples, batch)
        count, mean = torch.bincount(owners.cpu()), found.mean_loss()
        total = torch.bincount(owners.cpu(), found.losses)
    return {
        "client": [*plan.ids],
        "local_loss": (total[plan.ids] / count[plan.ids]).tolist(),
        "global_loss": [mean] * len(plan.ids),
    }
