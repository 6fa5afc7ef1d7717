"""The evaluation of a round: which models, into which columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedtide.engine.flat import weighted_sum
from fedtide.engine.neurons import activities, concentration, probe
from fedtide.federation.report import RoundReport
from fedtide.federation.state import RunState

if TYPE_CHECKING:
    from fedtide.federation.federation import Federation
    from fedtide.federation.round import Played


def evaluates(fed: Federation, model: str) -> bool:
    """Whether ``cloud``, ``participants``, ``all`` or ``ensemble`` is evaluated in this run."""
    evaluation = fed.settings.evaluation
    chosen = fed.algorithm.models if evaluation.models is None else evaluation.models
    return model == evaluation.reported or model in chosen


def columns(fed: Federation) -> list[str]:
    """Columns of the scores; every round has them, because the first one decides on the columns of the history."""
    endings = [f"{score}{suffix}" for _, suffix in _models(fed) for score in ("accuracy", "loss")]
    endings += ["accuracy_seen", "accuracy_masked"] if _has_views(fed) else []
    return [f"{split}_{ending}" for split in fed.settings.evaluation.splits for ending in endings]


def score(fed: Federation, report: RoundReport, state: RunState, played: Played, t: int) -> None:
    """Evaluate the models of round ``t`` and write what was found into ``report``."""
    evaluation, view = fed.settings.evaluation, fed.timeline.labels_at(t)
    if evaluation.neurons:
        inputs = fed.data.test_inputs[probe(fed.data.test_labels, evaluation.neurons)]
        layers = activities(fed.workers, played.w, played.b, inputs, evaluation.batch_size)
        report.neurons = {name: concentration(activity) for name, activity in layers.items()}
    models = {"cloud": (played.w, played.b), "participants": played.participants, "ensemble": played.members}
    for name, suffix in _models(fed):
        model = models.get(name) or (all_clients(fed, state, t), played.b)
        for split in evaluation.splits:
            scores = fed.scores(*model, split, view if _has_views(fed) and not suffix else None)
            report.row[f"{split}_accuracy{suffix}"] = scores.accuracy(view)
            report.row[f"{split}_loss{suffix}"] = scores.mean_loss(view)
            if not suffix:
                report.per_class[split] = scores.per_class()
            if scores.masked is not None:
                report.row[f"{split}_accuracy_seen"] = scores.accuracy(fed.timeline.labels_until(t))
                report.row[f"{split}_accuracy_masked"] = scores.accuracy(view, scores.masked)


def all_clients(fed: Federation, state: RunState, t: int) -> Tensor:
    """Mean [d] of the latest models of all clients present, weighted as the algorithm weights participants."""
    here = fed.timeline.at(t)
    shards = [fed.timeline.shards[shard] for shard in here.shards]
    n = torch.tensor([len(shard) for shard in shards], dtype=torch.float64)
    weights = fed.weighting.everybody(n, fed.label_counts(shards))
    rows = state.memory["latest"]
    if len(here.clients) < len(rows):
        rows = rows[torch.from_numpy(here.clients).to(rows.device)]
    return weighted_sum(weights, rows).to(fed.device)


def _models(fed: Federation) -> list[tuple[str, str]]:
    """Models that are evaluated, and what their columns end in."""
    reported = fed.settings.evaluation.reported
    names = [name for name in ("cloud", "participants", "all", "ensemble") if evaluates(fed, name)]
    return [(name, "" if name == reported else f"_{name}") for name in names]


def _has_views(fed: Federation) -> bool:
    """Whether some labels do not count in some session."""
    return not fed.timeline.label_views.all()
