"""The evaluation of a round: models and columns."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtide.engine.flat import weighted_sum
from fedtide.engine.passes.evaluation import Scores, predict
from fedtide.engine.passes.metrics import measure
from fedtide.engine.passes.neurons import activities, concentration, probe
from fedtide.federation.parts import Parts
from fedtide.federation.record import RoundRecord
from fedtide.federation.round import RoundResult
from fedtide.federation.scoring import client_scores
from fedtide.federation.state import RunState
from fedtide.settings.scores import RECORDED
from fedtide.world.timeline import HeldOut


def columns(parts: Parts) -> list[str]:
    """Columns of the scores; every round has them, since the first one fixes the columns of the history."""
    recorded = RECORDED[parts.data.task]
    endings = [f"{score}{suffix}" for _, suffix in _models(parts) for score in recorded]
    endings += parts.settings.evaluation.metrics
    endings += ["accuracy_seen", "accuracy_masked"] if _has_views(parts) else []
    if parts.timeline.looks_ahead:
        endings += [f"{name}_next" for name in (*recorded, *parts.settings.evaluation.metrics)]
    named = [f"{split}_{ending}" for split in parts.settings.evaluation.splits for ending in endings]
    return named + client_scores.columns(parts)


def score(parts: Parts, record: RoundRecord, state: RunState, result: RoundResult, t: int) -> None:
    """Evaluate the models of round ``t`` and write the scores into ``record``."""
    evaluation, view = parts.settings.evaluation, parts.timeline.labels_at(t)
    held_out, ahead = parts.timeline.evaluated_at(t), parts.timeline.evaluated_ahead_at(t)
    if evaluation.neurons:
        inputs, labels = parts.held_out("test", held_out)
        layers = activities(
            parts.workers, result.w, result.b, inputs[probe(labels, evaluation.neurons)], evaluation.batch_size
        )
        record.neurons = {name: concentration(activity) for name, activity in layers.items()}
    models = {"cloud": (result.w, result.b), "participants": result.participants, "ensemble": result.members}
    for name, suffix in _models(parts):
        model = models.get(name) or (all_clients(parts, state, t), result.b)
        for split in evaluation.splits:
            scores = parts.scores(*model, split, view if _has_views(parts) and not suffix else None, held_out)
            record.row |= {f"{split}_{score}{suffix}": value for score, value in scores.row(view).items()}
            if ahead is not None and not suffix:
                later = parts.scores(*model, split, held_out=ahead)
                record.row |= {f"{split}_{score}_next": value for score, value in later.row(view).items()}
                record.row |= _metrics(parts, model, split, ahead, "_next")
            if not suffix:
                record.row |= _metrics(parts, model, split, held_out)
            if not isinstance(scores, Scores):
                continue
            if not suffix:
                record.per_class[split] = scores.per_class()
                if split == evaluation.splits[0] and client_scores.due(parts, t):
                    client_scores.score_clients(parts, record, result, model, scores, t)
            if scores.masked is not None:
                record.row[f"{split}_accuracy_seen"] = scores.accuracy(parts.timeline.labels_until(t))
                record.row[f"{split}_accuracy_masked"] = scores.accuracy(view, scores.masked)


def _metrics(
    parts: Parts, model: tuple[Tensor, Tensor], split: str, held_out: HeldOut | None, ending: str = ""
) -> dict[str, float | None]:
    """The metrics asked for, by column; samples of labels that a session does not evaluate count as well."""
    evaluation = parts.settings.evaluation
    if not evaluation.metrics:
        return {}
    inputs, labels = parts.held_out(split, held_out)
    logits = predict(parts.workers, *model, inputs, evaluation.batch_size)
    found = measure(evaluation.metrics, logits, labels.cpu())
    return {f"{split}_{name}{ending}": value for name, value in found.items()}


def all_clients(parts: Parts, state: RunState, t: int) -> Tensor:
    """Mean [d] of the latest models of all clients present, weighted as the algorithm weights participants."""
    present, shards = parts.timeline.at(t).clients, parts.timeline.shards_at(t)
    n = torch.tensor([len(shard) for shard in shards], dtype=torch.float64)
    weights = parts.weighting.population_weights(n, parts.label_counts(shards))
    rows = state.memory["latest"]
    if len(present) < len(rows):
        rows = rows[torch.from_numpy(present).to(rows.device)]
    return weighted_sum(weights, rows).to(parts.device)


def _models(parts: Parts) -> list[tuple[str, str]]:
    """Models that are evaluated, and the suffixes of their columns."""
    reported = parts.settings.evaluation.reported
    names = [name for name in ("cloud", "participants", "all", "ensemble") if parts.evaluates(name)]
    return [(name, "" if name == reported else f"_{name}") for name in names]


def _has_views(parts: Parts) -> bool:
    """Whether some labels are not evaluated in some session."""
    return not parts.timeline.label_views.all()
