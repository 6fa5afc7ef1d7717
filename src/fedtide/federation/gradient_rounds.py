"""Gradient rounds, which an initialiser runs at the start of a session: they change nothing but the run's costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedtide.engine.flat import Layout
from fedtide.federation.ledger import charge
from fedtide.federation.parts import Parts
from fedtide.federation.plan import RoundPlan
from fedtide.federation.round import train_round
from fedtide.federation.state import RunState, initial_state
from fedtide.world.timeline import Assignment, Timeline


def eligible_clients(timeline: Timeline, t: int) -> Assignment:
    """Clients present in round ``t`` that have data."""
    present, eligible = timeline.at(t), timeline.sizes_at(t) > 0
    return Assignment(present.clients[eligible], present.shards[eligible])


@dataclass(frozen=True)
class GradientRounds:
    """Training at the start of the session that begins with round ``t``, with separate memories.

    All eligible clients take part, whatever fraction the run's own rounds draw. The memories of server and clients start as
    in a new run, last for the rounds of one call and are discarded. Batches have their own keys, so those of training stay
    the same.
    """

    parts: Parts
    state: RunState
    t: int

    @property
    def layout(self) -> Layout:
        """Names and slices of the parameters."""
        return self.parts.layout

    def train(self, w: Tensor, b: Tensor, rounds: int, lr: float, steps: int | None, batch_size: int | None) -> Tensor:
        """Parameters [d] after some rounds of the run's own algorithm.

        Args:
            w, b: model that the first round starts from.
            rounds: number of rounds; each is charged to the run and counted in ``gradient_rounds``.
            lr: constant learning rate.
            steps, batch_size: local steps of every client and samples per step; ``None``: as in training.
        """
        scratch = initial_state(self.parts)
        scratch.memory.pop("latest", None)  # for evaluation only
        scratch.w, scratch.b = w, b
        for v in range(rounds):
            plan = self._plan(v, lr, steps, batch_size)
            result = train_round(self.parts, scratch, plan)
            scratch.w, scratch.b = result.w, result.b
            charge(self.parts, self.state, plan, result.segments, result.length)
        self.state.totals["gradient_rounds"] += rounds
        return scratch.w

    def _plan(self, v: int, lr: float, steps: int | None, batch_size: int | None) -> RoundPlan:
        timeline, local = self.parts.timeline, self.parts.settings.local
        drawn, sizes = eligible_clients(timeline, self.t), timeline.sizes_at(self.t)
        session = int(timeline.session_of_round[self.t])
        amount = {} if steps is None else {"amount": steps, "unit": "steps"}
        batches = {} if batch_size is None else {"batch_size": batch_size}
        return RoundPlan(
            ids=drawn.clients.tolist(),
            shard_ids=drawn.shards.tolist(),
            shards=[timeline.shards[shard] for shard in drawn.shards],
            population=len(sizes),
            mean_size=float(np.mean(sizes)),
            participation_fraction=1.0,
            session=session,
            session_round=v,
            t=v,
            at=self.t,
            lr=lr,
            local=local.model_copy(update={**amount, **batches, "lr": lr, "schedule": "constant"}),
            purpose="gradient",
            keys=(session, v),
        )
