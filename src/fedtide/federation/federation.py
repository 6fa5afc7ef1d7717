"""The rounds of one run."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedtide.core.errors import Diverged
from fedtide.federation.clocks.clock import make_clock
from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.rounds.record import RoundRecord
from fedtide.federation.rounds.round import RoundResult, train_round
from fedtide.federation.scoring.scores import Scoring
from fedtide.federation.sessions.boundary import begin_session, boundary_at, change_population
from fedtide.federation.traffic.ledger import charge_session
from fedtide.federation.types import Parts, RunState


class Federation:
    """Runs the rounds of a run."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.clock = parts, make_clock(parts)

    @cached_property
    def scoring(self) -> Scoring:
        """What is evaluated, made when a round is first recorded."""
        return Scoring(self.parts)

    def run_round(self, state: RunState) -> RoundRecord:
        """Run round ``state.round`` and advance the state.

        Raises:
            Diverged: the loss or the model is not finite, or the loss exceeds its threshold; ``state.round`` includes the
                round, and the exception's ``record`` holds its row.
        """
        parts, began, t, before = self.parts, time.perf_counter(), state.round, dict(state.totals)
        for feature in parts.features:
            feature.open(parts, state, t)
        session, initial = self._begin(state, t)
        plan = self.clock.plan(state, t)
        for feature in parts.features:
            plan = feature.plan(parts, state, plan)
        if initial is None:
            change_population(parts, state, plan)
        if plan.session_round == 0:
            charge_session(state, parts.algorithm, plan.population)
        result = train_round(parts, state, plan)
        state.round = t + 1
        exchanges = self.clock.charge(state, plan, result)
        record = self._record(state, plan, result, t)
        self.clock.record(record, plan, state)
        record.session, record.initial = session, initial
        seconds = time.perf_counter() - began
        charged = ("kappa", *(("latency", "energy") if parts.wireless else ()))
        record.row |= {"seconds": round(seconds, 4), "exchanges": exchanges}
        # Nine digits: the difference of two sums is no more precise.
        record.row |= {name: float(f"{state.totals[name] - before[name]:.9g}") for name in charged}
        state.totals["seconds"] += seconds
        if result.failed:
            raise Diverged(
                f"diverged in round {t + 1}: training loss {result.train_loss:g}; try a smaller local.lr", record
            )
        if parts.timeline.ends_session(t):
            parts.initializer.end(boundary_at(parts, state, t))
        return record

    def _begin(self, state: RunState, t: int) -> tuple[dict[str, Any] | None, Tensor | None]:
        """What begins with round ``t``: a session, of which the record and the initial model are returned, or a response."""
        parts, session = self.parts, None
        first = t == parts.timeline.session_span(t)[0]
        if first:
            session = begin_session(parts, state, t)
        initial, replaced = state.w if first else None, first
        for feature in parts.features:
            replaced = feature.begin(parts, state, t, first, replaced)
        return session, initial

    def _record(self, state: RunState, plan: RoundPlan, result: RoundResult, t: int) -> RoundRecord:
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
        if not result.failed and parts.hardware.leads:
            self.scoring.score(record, state, result, t)
        return record
