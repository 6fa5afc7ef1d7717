"""The evaluation of a round: models, and the columns of the history that hold their scores."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from fedtide.core.array_types import Floats
from fedtide.federation.features.attack import Attacking
from fedtide.federation.features.kept_models import LATEST
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.scoring.attack_success import attack_success
from fedtide.federation.scoring.client_scores import ClientFits, ClientScores, due
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues
from fedtide.federation.scoring.owned_samples import OwnedSamples
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.types import Parts, RoundContext, RunState
from fedtide.methods.algorithms.base import overrides
from fedtide.settings.scores import RECORDED, Score
from fedtide.training.engine.flat import weighted_sum
from fedtide.training.engine.passes.evaluation import Scores
from fedtide.training.engine.passes.metrics import Fit
from fedtide.world.timeline import HeldOut

MODELS = ("global", "participants", "all", "ensemble")

Value = Callable[["Moment"], float | None]

_OF_REPORTED = ("accuracy", "loss", "r2", "mae")  # columns of client scores


class Moment:
    """A round after its training. Models and their scores are computed when they are first asked for."""

    def __init__(self, r: RoundContext) -> None:
        evaluator, t, w, b = r.parts.evaluator, r.plan.t, r.state.w, r.state.b
        self.t = t
        timeline = evaluator.timeline
        self.view = timeline.labels_at(t)
        self.until = timeline.labels_until(t)
        held_out, mixture = timeline.evaluated_at(t), timeline.mixture_at(t)
        samples = {False: held_out, True: timeline.evaluated_ahead_at(t)}

        @cache
        def model(name: str) -> ModelValues:
            if name == "all":
                return latest_mean(r.parts, r.state, t), b
            if name == "ensemble" and r.plan.ids:
                return r.cohort.W, r.cohort.buffers
            return (r.participants, b) if name == "participants" else (w, b)

        @cache
        def scores(name: str, split: str, ahead: bool = False, masked: bool = False) -> Scores | Fit | None:
            if ahead and samples[True] is None:
                return None
            shares = None if ahead else mixture
            return evaluator.scores(model(name), split, self.view if masked else None, samples[ahead], shares)

        @cache
        def row(name: str, split: str, ahead: bool, masked: bool) -> dict[str, float | None]:
            found = scores(name, split, ahead, masked)
            return {} if found is None else found.row(self.view)

        @cache
        def metrics(name: str, split: str, ahead: bool) -> dict[str, float | None]:
            if ahead and samples[True] is None:
                return {}
            return evaluator.metrics(model(name), split, samples[ahead], None if ahead else mixture, self.view)

        def rows_ahead(split: str) -> int | None:
            later = samples[True]
            return None if later is None else evaluator.count(split, later)

        self.model, self.scores, self.row, self.metrics, self.rows_ahead = model, scores, row, metrics, rows_ahead


class Scoring:
    """Evaluates the models of a run."""

    def __init__(self, parts: Parts) -> None:
        evaluation, evaluator = parts.settings.evaluation, parts.evaluator
        self._evaluator, self._reported = evaluator, evaluation.model
        self._masked = evaluator.has_views
        served = ServedModels(parts)
        own = overrides(parts.algorithm, "served") or served.keeps_last
        self._fits = ClientFits(served, own) if parts.data.task == "regression" else None
        self._keep_last = served.keep_last if served.keeps_last else None
        self._clients = ClientScores(served, own)
        self._owned = OwnedSamples(served)
        # A global model that nobody trains has no scores.
        self._untrained = evaluation.model == "global" and "global" not in parts.algorithm.models
        self._values: dict[str, Value] = {}
        for split in evaluation.splits:
            self._values |= self._of_split(split, [name for name in MODELS if parts.evaluates(name)])
        attack = parts.feature(Attacking)
        if attack is not None and attack.attackers.attack.repaints:
            of_attack = partial(attack_success, evaluator, attack.attackers)
            self._values["attack_success"] = lambda moment: of_attack(moment.model(self._reported), moment.t)

    @property
    def columns(self) -> list[str]:
        """Every round has them, since the first one fixes the columns of the history."""
        return [*self._values, *self._owned.columns, *(self._fits or self._clients).columns]

    def score(self, record: RoundRecord, r: RoundContext) -> None:
        """Write the scores that are due after a round into its record."""
        evaluator, t = self._evaluator, r.plan.t
        settings, timeline = evaluator.settings, evaluator.timeline
        moment = Moment(r)
        if self._keep_last is not None:
            self._keep_last(r.state, t, len(r.plan.ids))
        if (t + 1) % settings.every == 0 or t + 1 == timeline.rounds or timeline.looks_ahead_at(t):
            self._score_round(record, r, moment)
        if settings.earlier_sessions and timeline.tests_sessions and timeline.ends_period(t):
            model = None if self._untrained else moment.model(self._reported)
            record.session_scores = session_scores(evaluator, model, t)
        if timeline.ends_period(t):
            self._score_owned(record, r.state, t)

    def _score_owned(self, record: RoundRecord, state: RunState, t: int) -> None:
        """Scores of what clients are served at the end of a period: on its samples, on earlier ones, and on the next one's."""
        timeline, owned = self._evaluator.timeline, self._owned
        ahead = timeline.evaluated_ahead_at(t)
        tested = [timeline.tested_in(number)[0] for number in range(int(timeline.period_of_round[t]) + 1)]
        tested = tested if record.session_scores else tested[-1:]
        for split in owned.splits:
            rows = owned.rows(state, t, split, [*tested, *([] if ahead is None else [ahead])])
            own = {f"{split}_{name}": value for name, value in rows[len(tested) - 1].items()}
            record.row |= {name: value for name, value in own.items() if name in record.row}
            for line, row in zip(record.session_scores, rows, strict=False):
                line |= {f"{split}_{name}": value for name, value in row.items() if not Score(name).over_clients}
            if ahead is not None:
                record.row |= {f"{split}_{Score(name).next.name}": value for name, value in rows[-1].items()}
        if ahead is not None and owned.splits:
            record.owner_scores = owned.clients(state, t, owned.splits[0], ahead)

    def _score_round(self, record: RoundRecord, r: RoundContext, moment: Moment) -> None:
        evaluator, settings, reported = self._evaluator, self._evaluator.settings, self._reported
        record.row |= {name: value(moment) for name, value in self._values.items()}
        for split in settings.splits:
            scores = moment.scores(reported, split, False, self._masked)
            if isinstance(scores, Scores) and not self._untrained:
                record.per_class[split] = scores.per_class()
        scores = moment.scores(reported, settings.splits[0], False, self._masked)
        if self._fits is not None:
            self._fits.score(record, r, moment.model(reported))
        if isinstance(scores, Scores) and due(evaluator, r.plan.t):
            self._clients.score(record, r, moment.model(reported), scores)
        if self._untrained:
            record.row |= {name: None for name in record.row if name.startswith("client_")}
            told = {name: [None] * len(column) for name, column in record.client_scores.items() if name in _OF_REPORTED}
            record.client_scores |= told

    def _of_split(self, split: str, models: list[str]) -> dict[str, Value]:
        """The columns of a split, and where their values come from."""
        recorded, reported = RECORDED[self._evaluator.data.task], self._reported
        metrics = self._evaluator.settings.metrics
        columns: dict[str, Value] = {}

        def of_model(name: str, score: str, ahead: bool = False) -> Value:
            if name == reported and self._untrained:
                return lambda moment: None
            masked = self._masked and name == reported and not ahead
            return lambda moment: moment.row(name, split, ahead, masked).get(score)

        def of_metric(metric: str, ahead: bool) -> Value:
            if self._untrained:
                return lambda moment: None
            return lambda moment: moment.metrics(reported, split, ahead).get(metric)

        def of_labels(masked: bool) -> Value:
            def accuracy(moment: Moment) -> float | None:
                found = moment.scores(reported, split, False, True)
                if not isinstance(found, Scores):
                    return None
                return found.accuracy(moment.view, found.masked) if masked else found.accuracy(moment.until)

            return accuracy

        for name in models:
            suffix = "" if name == reported else f"_{name}"
            columns |= {f"{split}_{score}{suffix}": of_model(name, score) for score in recorded}
        columns |= {f"{split}_{metric}": of_metric(metric, False) for metric in metrics}
        if self._masked:
            columns |= {f"{split}_accuracy_seen": of_labels(False), f"{split}_accuracy_masked": of_labels(True)}
        if self._evaluator.timeline.looks_ahead:
            columns |= {f"{split}_{score}_next": of_model(reported, score, True) for score in recorded}
            columns |= {f"{split}_{metric}_next": of_metric(metric, True) for metric in metrics}
            columns[f"{split}_rows_next"] = lambda moment: moment.rows_ahead(split)
        return columns


def latest_mean(parts: Parts, state: RunState, t: int) -> Tensor:
    """Mean [d] of the latest models of all clients present, weighted as the algorithm weights participants."""
    timeline = parts.timeline
    present, shards = timeline.at(t).clients, timeline.shards_at(t)
    n = torch.tensor([len(shard) for shard in shards], dtype=torch.float64)
    weights = parts.weighting.population_weights(n, parts.data.label_counts(shards))
    rows = state.memory[LATEST]
    if len(present) < len(rows):
        rows = rows[torch.from_numpy(present).to(rows.device)]
    return weighted_sum(weights, rows).to(state.w.device)


def session_scores(evaluator: Evaluator, model: ModelValues | None, t: int) -> list[dict[str, Any]]:
    """A row per period up to that which ends with round ``t``, with the scores of ``model`` on its samples.

    Columns: ``session``, the period that has ended, and ``tested``, both from 1; ``<split>_<score>``, those that every run of
    the task records, over the labels that the tested session evaluates, and ``evaluation.metrics``, unless sessions evaluate
    different labels. Without a model there are no scores.
    """
    timeline, settings = evaluator.timeline, evaluator.settings
    session = int(timeline.period_of_round[t])
    if model is None:
        return [{"session": session + 1, "tested": tested + 1} for tested in range(session + 1)]
    rows: list[dict[str, Any]] = []
    known: dict[tuple[str, int, bytes | None], Any] = {}

    def scored(split: str, held_out: HeldOut | None, mixture: Floats | None) -> Any:
        """Scores and metrics of a set of samples, once for all sessions that are evaluated on it."""
        key = split, id(held_out), None if mixture is None else mixture.tobytes()
        if key not in known:
            metrics = {} if evaluator.has_views else evaluator.metrics(model, split, held_out, mixture)
            known[key] = evaluator.scores(model, split, None, held_out, mixture), metrics
        return known[key]

    for tested in range(session + 1):
        held_out, labels, mixture = timeline.tested_in(tested)
        row: dict[str, Any] = {"session": session + 1, "tested": tested + 1}
        for split in settings.splits:
            scores, metrics = scored(split, held_out, mixture)
            row |= {f"{split}_{name}": value for name, value in (scores.row(labels) | metrics).items()}
        rows.append(row)
    return rows
