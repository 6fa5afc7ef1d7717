"""What is recorded of those who are called, before they train: how well the model they receive fits them, and everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedtide.engine.evaluation import evaluate
from fedtide.federation.round import Call

if TYPE_CHECKING:
    from fedtide.federation.federation import Federation


def consistency(fed: Federation, w: Tensor, b: Tensor, call: Call) -> dict[str, list[float]]:
    """Columns of ``clients.csv``, a value for each participant (Zhou et al. 2025, Fig. 2, asks for their changes).

    ``client``; ``local_loss``, mean cross-entropy of the model ``w``, ``b`` over the participant's training samples;
    ``global_loss``, over those of all clients present, the same for all participants of a round. It costs a forward pass over
    all samples and does not touch training.
    """
    here = fed.timeline.at(call.t)
    shards = [fed.timeline.shards[shard] for shard in here.shards]
    owners = torch.from_numpy(np.repeat(here.clients, [len(shard) for shard in shards])).to(fed.device)
    samples = torch.from_numpy(np.concatenate(shards)).to(fed.device)
    inputs, labels = fed.data.train_inputs[samples], fed.data.train_labels[samples]
    scores = evaluate(fed.workers, w, b, inputs, labels, fed.settings.evaluation.batch_size, groups=owners)
    losses = scores.loss[call.ids] / scores.count[call.ids]
    return {
        "client": [*call.ids],
        "local_loss": losses.tolist(),
        "global_loss": [scores.mean_loss()] * len(call.ids),
    }
