"""The rounds of one run, and what happens where sessions begin and where the client population changes."""

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core.errors import Diverged
from fedtide.federation.clocks.events import EventClock
from fedtide.federation.gradient_rounds import GradientRounds
from fedtide.federation.rounds.ahead import Ahead
from fedtide.federation.rounds.divergence import reason
from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.rounds.round import RoundRecord, idle_round, train_round
from fedtide.federation.scoring.evaluator import Evaluator
from fedtide.federation.scoring.scores import Scoring
from fedtide.federation.state import clear, forget_all, keep_means
from fedtide.federation.traffic import charge
from fedtide.federation.types import Parts, RoundContext, RunState
from fedtide.methods.algorithms.base import Session
from fedtide.methods.initializers.base import Boundary, Start, average
from fedtide.settings.run import Async
from fedtide.settings.scores import main_score


class RoundClock:
    """The server waits for all participants of a round; with ``mode: async`` :class:`EventClock` takes its place."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.ahead = parts, Ahead(parts)

    def plan(self, state: RunState, t: int) -> RoundPlan:
        """The plan of round ``t``."""
        plan = self.ahead.plan(t)
        if self.parts.algorithm.rests(Session(plan.session, plan.session_round)):
            return replace(plan, ids=[], shard_ids=[], shards=[], drawn=None, rests=True)
        return plan

    def charge(self, r: RoundContext) -> int:
        """Add what the round costs to the totals; number of exchanges of models, summed over participants."""
        costs = self.parts.payload(r.state.extra), self.parts.wireless, r.bytes_down
        return charge(r.state.totals, r.plan, r.segments, *costs)

    def record(self, record: RoundRecord, r: RoundContext) -> None:
        """Add columns to what is recorded of the round: none."""


@dataclass(frozen=True)
class TrainedRound:
    """A round before it is recorded.

    Attributes:
        r: after training. plan: as it was before features changed its samples. exchanges: of models, summed over participants.
        session, initial: facts and first model [d] of the session that begins with it, else None.
    """

    r: RoundContext
    plan: RoundPlan
    exchanges: int
    session: dict[str, Any] | None
    initial: Tensor | None


class Federation:
    """Runs the rounds of a run."""

    def __init__(self, parts: Parts) -> None:
        mode = parts.settings.mode
        self.parts = parts
        self.clock = EventClock(parts, mode) if isinstance(mode, Async) else RoundClock(parts)

    @cached_property
    def scoring(self) -> Scoring:
        """What is evaluated, made when a round is first recorded."""
        return Scoring(self.parts)

    def run_round(self, state: RunState) -> RoundRecord:
        """Run round ``state.round`` and advance the state.

        Raises:
            Diverged: see :mod:`fedtide.federation.rounds.divergence`; ``state.round`` includes the round, and the exception's
                ``record`` holds its row.
        """
        parts, began, before = self.parts, time.perf_counter(), dict(state.totals)
        done = self._train(state)
        record = self._record(done.r, done.plan)
        self.clock.record(record, done.r)
        record.session, record.initial, record.events = done.session, done.initial, done.r.events
        seconds = time.perf_counter() - began
        charged = ("kappa", *(("latency", "energy") if parts.wireless else ()))
        record.row |= {"seconds": round(seconds, 4), "exchanges": done.exchanges}
        # Nine digits: the difference of two sums is no more precise.
        record.row |= {name: float(f"{state.totals[name] - before[name]:.9g}") for name in charged}
        state.totals["seconds"] += seconds
        self._close(done.r, record)
        return record

    def advance(self, state: RunState) -> RoundContext:
        """The same, but for evaluation and records; the round."""
        r = self._train(state).r
        self._close(r)
        return r

    def _train(self, state: RunState) -> TrainedRound:
        """Round ``state.round``, from what begins with it to its costs."""
        parts, t = self.parts, state.round
        session: dict[str, Any] | None = None
        for feature in parts.features:
            feature.open(parts, state, t)
        if first := t == parts.timeline.session_span(t)[0]:
            session = begin_session(parts, state, t)
        initial, replaced = state.w if first else None, first
        for feature in parts.features:
            replaced = feature.begin(parts, state, t, first, replaced)
        plan = planned = self.clock.plan(state, t)
        for feature in parts.features:
            plan = feature.plan(parts, state, plan)
        if not first:
            change_population(parts, state, plan)
        if plan.session_round == 0:
            up, down = parts.algorithm.session_traffic(plan.population)
            state.totals["bytes_up"] += up
            state.totals["bytes_down"] += down
        if plan is planned and isinstance(self.clock, RoundClock):
            self.clock.ahead.begin(t + 1)
        r = train_round(parts, state, plan) if plan.ids else idle_round(parts, state, plan)
        state.totals["steps"] += sum(r.cohort.plan.steps) if plan.ids else 0
        state.round = t + 1
        return TrainedRound(r, plan, self.clock.charge(r) if plan.ids else 0, session, initial)

    def _close(self, r: RoundContext, record: RoundRecord | None = None) -> None:
        """End the run if it has diverged, and the session with its last round."""
        parts, t = self.parts, r.plan.t
        if r.failed:
            raise Diverged(reason(r), record)
        if parts.timeline.ends_session(t):
            parts.initializer.end(boundary_at(parts, r.state, t))

    def _record(self, r: RoundContext, plan: RoundPlan) -> RoundRecord:
        parts, totals = self.parts, r.state.totals
        record = RoundRecord(
            {
                "round": plan.t + 1,
                "session": int(parts.timeline.period_of_round[plan.t]) + 1,
                "train_loss": r.train_loss if plan.ids else None,
                "present": plan.population,
                "selected": len(plan.ids),
                "completed": r.trained,
                "drift": r.drift if plan.ids else 0.0 if plan.rests else None,
                **({"concepts_changed": len(parts.timeline.changed_at(plan.t))} if parts.timeline.concepts else {}),
                "bytes_up": int(totals["bytes_up"]),
                "bytes_down": int(totals["bytes_down"]),
                "gradient_rounds": int(totals["gradient_rounds"]),
                "lr": plan.lr,
                **dict.fromkeys(self.scoring.columns),
                **r.server,
            },
            clients=dict(r.clients),
        )
        if parts.data.task == "classification" and plan.ids:
            held = parts.label_counts(plan.shard_ids, plan.shards)
            record.per_class["held"] = held.sum(0).to(torch.int64).tolist()
        if not r.failed and parts.hardware.leads:
            self.scoring.score(record, r)
        return record


def begin_session(parts: Parts, state: RunState, t: int) -> dict[str, Any] | None:
    """Start a session with round ``t``: take the initializer's model, reset client state or adapt it to the population.

    Returns the :func:`session_record`; ``None`` for the first session, and for one that an alarm begins within a period.
    """
    boundary = boundary_at(parts, state, t)
    w, b = parts.initializer.start(boundary)
    state.w, state.b = w.clone(), b.clone()
    if t == 0:
        return None
    if parts.settings.client_state.on_session_start == "keep":
        keep_means(parts.algorithm, state, parts.timeline, parts.timeline.at(t))
    else:
        forget_all(parts, state)
    if not parts.hardware.leads or t not in parts.timeline.period_starts:
        return None
    return session_record(parts.evaluator, boundary, parts.settings.initializer.name, (state.w, state.b), t)


def boundary_at(parts: Parts, state: RunState, t: int) -> Boundary:
    """The boundary before or after round ``t``, as an initializer sees it."""
    timeline = parts.timeline
    first, _ = timeline.session_span(t)
    earlier = timeline.label_views[np.unique(timeline.view_of_round[:first])]
    session, kinds = int(timeline.session_of_round[t]), timeline.kinds
    return Boundary(
        session=session,
        pilot=timeline.pilot,
        w=state.w,
        b=state.b,
        w0=parts.w0,
        b0=parts.b0,
        devices=timeline.at(t).clients.tolist(),
        store=state.initializer,
        lr=parts.settings.local.lr,
        old_labels=torch.from_numpy(earlier.any(0)).to(parts.hardware.device),
        services=GradientRounds(parts, state, t),
        kind=kinds.index(kinds[timeline.period_of_round[t]]) if kinds else None,
    )


def session_record(evaluator: Evaluator, s: Boundary, initializer: str, start: Start, t: int) -> dict[str, Any]:
    """Facts about the session that begins with round ``t``, JSON-able.

    ``session`` (from 1); ``returning``: see :meth:`Timeline.returning`; ``initializer``, or ``pilot``; the initializer's own
    facts; ``<split>_accuracy`` of the initial model on the session's labels (or another task's main score); and ``losses`` over
    all training samples of the clients present: of the session's initial model (``start``), the previous session's final one,
    the mean over all sessions after the pilot (``average``, null if there is none yet) and the run's first one.
    """
    settings, timeline = evaluator.settings, evaluator.timeline
    period = int(timeline.period_of_round[t])
    facts = {
        "session": period + 1,
        "returning": timeline.returning(period),
        "initializer": "pilot" if s.session < s.pilot else initializer,
        **s.facts,
    }
    main = main_score(evaluator.data.task).name
    for split in settings.splits:
        where = timeline.evaluated_at(t), timeline.mixture_at(t)
        scores = evaluator.scores(start, split, None, *where)
        facts[f"{split}_{main}"] = scores.row(timeline.labels_at(t))[main]
    if settings.session_start_losses:
        models = {"start": start, "previous": (s.w, s.b), "average": average(s), "first": (s.w0, s.b0)}
        samples = evaluator.training_samples(timeline.shards_at(t))  # once for every client that holds it
        facts["losses"] = {
            name: model and evaluator.scores_on(model, *samples).mean_loss() for name, model in models.items()
        }
    return facts


def change_population(parts: Parts, state: RunState, plan: RoundPlan) -> None:
    """Within a session: state of clients that have left is cleared, and declared means are those of the clients present.

    A mean that kept the part of a client that has left would pull the model toward data that is gone, and count it twice when
    the client returns as a new one. With ``client_state.on_leave: keep`` clients keep their own models until they return.
    """
    if plan.departed is None:
        return
    departed = torch.from_numpy(plan.departed)
    if plan.starts is None:  # else they were told when they left, and may be back
        for feature in parts.features:
            feature.forget(parts, state, departed, left=True)
    if not ("personal" in parts.algorithm.models and parts.settings.client_state.on_leave == "keep"):
        clear(parts, state, departed[state.written[departed] > 0])
        state.seen[departed] = False
        parts.algorithm.forget(state.extra, departed)
    keep_means(parts.algorithm, state, parts.timeline, plan.present)
