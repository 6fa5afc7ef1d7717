"""The rounds of one run."""

from __future__ import annotations

import math
import time

import torch

from fedtide.core.errors import Diverged
from fedtide.federation.boundary import begin_session, boundary_at, change_population
from fedtide.federation.clocks.clock import make_clock
from fedtide.federation.detection import Detection
from fedtide.federation.downlink import advance, broadcast
from fedtide.federation.ledger import charge_session
from fedtide.federation.parts import Parts
from fedtide.federation.plan import RoundPlan
from fedtide.federation.record import RoundRecord
from fedtide.federation.round import RoundResult, train_round
from fedtide.federation.scoring.consistency import consistency
from fedtide.federation.scoring.scores import Scoring
from fedtide.federation.state import RunState


class Federation:
    """Runs the rounds of a run."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.clock, self.scoring = parts, make_clock(parts), Scoring(parts)
        self.detection = Detection(parts)

    def run_round(self, state: RunState) -> RoundRecord:
        """Run round ``state.round`` and advance the state.

        Raises:
            Diverged: the loss or the model is not finite, or the loss exceeds its threshold; ``state.round`` includes the
                round, and the exception's ``record`` holds its row.
        """
        parts, began, t, before = self.parts, time.perf_counter(), state.round, dict(state.totals)
        self.detection.begin_sessions(state)
        first, _ = parts.timeline.session_span(t)
        session = initial = None
        if t == first:
            session = begin_session(parts, state, t)
            initial = state.w
        self.detection.respond(state, t)
        plan = self.detection.changed(self.clock.plan(state, t), state)
        if t > first:
            change_population(parts, state, plan)
        watched = parts.settings.evaluation.consistency and parts.hardware.leads
        fits = consistency(parts.evaluator, (broadcast(state), state.b), plan) if watched else {}
        if plan.session_round == 0:
            charge_session(state, parts.algorithm, plan.population)
        result = train_round(parts, state, plan)
        state.w, state.b, state.round = result.w, result.b, t + 1
        exchanges = self.clock.charge(state, plan, result)
        sent = advance(parts, state, plan)
        failed = self._failed(result)
        alarms = self.detection.observe(state, plan, result, failed)
        record = self._record(state, plan, result, t, failed)
        record.row |= sent | alarms
        record.clients |= fits
        self.clock.record(record, plan, state)
        record.session, record.initial = session, initial
        seconds = time.perf_counter() - began
        charged = ("kappa", *(("latency", "energy") if parts.wireless else ()))
        record.row |= {"seconds": round(seconds, 4), "exchanges": exchanges}
        # Nine digits: the difference of two sums is no more precise.
        record.row |= {name: float(f"{state.totals[name] - before[name]:.9g}") for name in charged}
        state.totals["seconds"] += seconds
        if failed:
            raise Diverged(
                f"diverged in round {t + 1}: training loss {result.train_loss:g}; try a smaller local.lr", record
            )
        if parts.timeline.ends_session(t):
            parts.initialiser.end(boundary_at(parts, state, t))
        return record

    def _failed(self, result: RoundResult) -> bool:
        finite = math.isfinite(result.train_loss) and bool(torch.isfinite(result.w).all())
        return not finite or result.train_loss > self.parts.settings.federation.divergence_threshold

    def _record(self, state: RunState, plan: RoundPlan, result: RoundResult, t: int, failed: bool) -> RoundRecord:
        parts = self.parts
        record = RoundRecord(
            {
                "round": t + 1,
                "session": plan.session + 1,
                "train_loss": result.train_loss,
                "present": plan.population,
                "selected": len(plan.ids),
                "completed": result.trained,
                "drift": result.drift,
                **({"concepts_changed": len(parts.timeline.changed_at(t))} if parts.timeline.concepts else {}),
                "bytes_up": int(state.totals["bytes_up"]),
                "bytes_down": int(state.totals["bytes_down"]),
                "gradient_rounds": int(state.totals["gradient_rounds"]),
                "lr": plan.lr,
                **dict.fromkeys(self.scoring.columns),
                **result.server,
            },
            clients=dict(result.clients),
        )
        if parts.data.task == "classification":
            record.per_class["held"] = parts.data.label_counts(plan.shards).sum(0).to(torch.int64).tolist()
        if not failed and parts.hardware.leads:
            self.scoring.score(record, state, result, t)
        return record
