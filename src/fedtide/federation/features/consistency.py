"""Loss of the broadcast model on each participant's data and on all data, recorded before training."""

import numpy as np
import torch
from torch import Tensor

from fedtide.federation.types import Feature, RoundContext
from fedtide.training.engine.passes.evaluation import evaluate
from fedtide.training.engine.passes.metrics import fit


class Consistency(Feature):
    """Two columns of ``clients.csv`` (Zhou et al. 2025, Fig. 2, shows their changes), with no effect on training."""

    name = "consistency"
    rehearses = False

    def before(self, r: RoundContext) -> None:
        if r.parts.hardware.leads:
            r.notes[self.name] = _losses(r)

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        return dict(r.notes.get(self.name, {}))


def _losses(r: RoundContext) -> dict[str, Tensor]:
    """Mean cross-entropy (or another task's loss) of the model that is sent, columns [C, 1].

    ``local_loss``: over the participant's training samples; ``global_loss``: over those of all clients present, the same for
    all participants of a round. This takes a forward pass over all samples.
    """
    evaluator, plan, model = r.parts.evaluator, r.plan, (r.sent, r.state.b)
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
    local = torch.as_tensor(total[plan.ids] / count[plan.ids]).unsqueeze(1).double()
    return {"local_loss": local, "global_loss": torch.full_like(local, torch.nan if mean is None else mean)}
