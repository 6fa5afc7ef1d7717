"""What is recorded of the beginning of a session: how its first model was chosen, and how good it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedtide.engine.evaluation import evaluate
from fedtide.initialisation.base import Boundary, Start, average

if TYPE_CHECKING:
    from fedtide.federation.federation import Federation


def opening(fed: Federation, s: Boundary, start: Start, t: int) -> dict[str, Any]:
    """Facts about the session that begins with round ``t``, JSON-able.

    ``session`` (from 1); ``returning``: whether its clients had one after the pilot before; ``initialiser``, ``pilot`` in
    pilot sessions; what the initialiser remarks (``weights`` and ``distances`` by stored session); ``<split>_accuracy`` of
    the first model on the session's labels before any training; and ``losses``: mean cross-entropy over all training samples
    of the clients present, of the first model (``start``), the last one of the session before (``previous``), the plain mean
    of all sessions after the pilot (``average``, null before there is one) and the run's first model (``first``).
    """
    evaluation = fed.settings.evaluation
    facts = {
        "session": s.session + 1,
        "returning": fed.timeline.returning(s.session),
        "initialiser": "pilot" if s.session < s.pilot else fed.settings.initialiser.name,
        **s.facts,
    }
    for split in evaluation.splits:
        facts[f"{split}_accuracy"] = fed.scores(*start, split).accuracy(fed.timeline.labels_at(t))
    if evaluation.boundary_losses:
        models = {"start": start, "previous": (s.w, s.b), "average": average(s), "first": (s.w0, s.b0)}
        facts["losses"] = dict(zip(models, _losses(fed, list(models.values()), t), strict=True))
    return facts


def _losses(fed: Federation, models: list[Start | None], t: int) -> list[float | None]:
    """Loss of each model; a sample that several clients hold counts as often."""
    shards = [fed.timeline.shards[shard] for shard in fed.timeline.at(t).shards]
    samples = torch.from_numpy(np.concatenate(shards)).to(fed.device)
    inputs, labels = fed.data.train_inputs[samples], fed.data.train_labels[samples]
    batch = fed.settings.evaluation.batch_size
    return [model and evaluate(fed.workers, *model, inputs, labels, batch).mean_loss() for model in models]
