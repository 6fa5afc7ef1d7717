"""How often a model takes samples for what attackers want."""

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Bools
from fedtide.federation.features.attack import Attackers
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues, part_of
from fedtide.training.engine.passes.evaluation import evaluate


def attack_success(evaluator: Evaluator, attackers: Attackers, model: ModelValues, t: int) -> float | None:
    """Share of changed samples of the first split, of labels that attackers take for others, which a model takes for these."""
    split, timeline = evaluator.settings.splits[0], evaluator.timeline
    mixture, view = timeline.mixture_at(t), timeline.labels_at(t)
    parts = [(1.0, evaluator.samples(split, timeline.evaluated_at(t)))]
    if mixture is not None:
        seen = {
            concept: evaluator.on_device(evaluator.under(split, concept))
            for concept in np.flatnonzero(mixture).tolist()
        }
        parts = [(float(mixture[c]), evaluator.data.read(part_of(split), places)) for c, places in seen.items()]
    hits, count = 0.0, 0.0
    for share, (inputs, labels) in parts:
        found, tested = _taken(evaluator, attackers, model, inputs, labels, view)
        hits, count = hits + share * found, count + share * tested
    return hits / count if count else None


def _taken(
    evaluator: Evaluator, attackers: Attackers, model: ModelValues, inputs: Tensor, labels: Tensor, view: Bools
) -> tuple[int, int]:
    """How many of some samples are taken for what attackers want, and how many there are."""
    data, workers = evaluator.data, evaluator.workers
    wanted = attackers.taken_for(labels, data.num_classes)
    places = ((wanted != labels) & torch.from_numpy(view).to(labels.device)[labels]).nonzero()[:, 0]
    brightest, hits = attackers.brightest.to(inputs.device), 0
    if inputs.dtype != torch.uint8:
        brightest = data.prepare(brightest.unsqueeze(0), inputs.dtype)[0]
    for some in torch.split(places, evaluator.batch * workers.count):
        changed = attackers.inputs(inputs[some], brightest)
        hits += int(evaluate(workers, *model, changed, wanted[some], evaluator.batch).correct.sum())
    return hits, len(places)
