"""Scores of the model at the end of a session on the held-out samples of every session so far."""

from __future__ import annotations

from typing import Any

from fedtide.core.array_types import Floats
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues
from fedtide.world.timeline import HeldOut


def session_scores(evaluator: Evaluator, model: ModelValues, t: int) -> list[dict[str, Any]]:
    """A row per session up to that which ends with round ``t``, with the scores of ``model`` on its samples.

    Columns: ``session`` that has ended and session ``tested``, both from 1; ``<split>_<score>``, those that every run of the
    task records, over the labels that the tested session evaluates, and ``evaluation.metrics``, unless sessions evaluate
    different labels, which these metrics do not distinguish.
    """
    timeline, settings = evaluator.timeline, evaluator.settings
    rows, known = list[dict[str, Any]](), dict[tuple[str, int, bytes | None], Any]()

    def scored(split: str, held_out: HeldOut | None, mixture: Floats | None) -> Any:
        """Scores and metrics of a set of samples, once for all sessions that are evaluated on it."""
        key = split, id(held_out), None if mixture is None else mixture.tobytes()
        if key not in known:
            metrics = {} if evaluator.has_views else evaluator.metrics(model, split, held_out, mixture)
            known[key] = evaluator.scores(model, split, None, held_out, mixture), metrics
        return known[key]

    session = int(timeline.session_of_round[t])
    for tested in range(session + 1):
        held_out, labels, mixture = timeline.tested_in(tested)
        row: dict[str, Any] = {"session": session + 1, "tested": tested + 1}
        for split in settings.splits:
            scores, metrics = scored(split, held_out, mixture)
            row |= {f"{split}_{name}": value for name, value in (scores.row(labels) | metrics).items()}
        rows.append(row)
    return rows
