"""Loss of the broadcast model on each participant's data and on all data, recorded before training."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedtide.engine.passes.evaluation import evaluate
from fedtide.engine.passes.fit import fit
from fedtide.federation.parts import Parts
from fedtide.federation.plan import RoundPlan


def consistency(parts: Parts, w: Tensor, b: Tensor, plan: RoundPlan) -> dict[str, list[float]]:
    """Columns of ``clients.csv``, one value per participant (Zhou et al. 2025, Fig. 2, shows their changes).

    ``client``; ``local_loss``, mean cross-entropy (or another task's loss) of the model ``w``, ``b`` over the participant's
    training samples; ``global_loss``, over those of all clients present, the same for all participants of a round. This takes
    a forward pass over all samples and does not affect training.
    """
    shards = parts.timeline.shards_at(plan.t)
    clients = np.repeat(parts.timeline.at(plan.t).clients, [len(shard) for shard in shards])
    owners = torch.from_numpy(clients).to(parts.device)
    samples = torch.from_numpy(np.concatenate(shards)).to(parts.device)
    inputs, labels = parts.data.train_inputs[samples], parts.data.train_labels[samples]
    if parts.data.task == "classification":
        scores = evaluate(parts.workers, w, b, inputs, labels, parts.settings.evaluation.batch_size, groups=owners)
        total, count, mean = scores.loss, scores.count, scores.mean_loss()
    else:
        found = fit(parts.workers, w, b, inputs, labels, parts.settings.evaluation.batch_size)
        count, mean = torch.bincount(owners.cpu()), found.mean_loss()
        total = torch.bincount(owners.cpu(), found.losses)
    return {
        "client": [*plan.ids],
        "local_loss": (total[plan.ids] / count[plan.ids]).tolist(),
        "global_loss": [mean] * len(plan.ids),
    }
