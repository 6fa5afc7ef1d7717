"""Rounds that an initialiser asks for at the start of a session: they leave no trace but their costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from fedtide.engine.flat import Layout
from fedtide.federation.round import Call, train_round
from fedtide.federation.state import RunState
from fedtide.scenarios.timeline import Assignment, Timeline

if TYPE_CHECKING:
    from fedtide.federation.federation import Federation


def everybody(timeline: Timeline, t: int) -> Assignment:
    """Clients present in round ``t`` that have data."""
    here = timeline.at(t)
    able = np.array([len(timeline.shards[shard]) > 0 for shard in here.shards], dtype=np.bool_)
    return Assignment(here.clients[able], here.shards[able])


@dataclass(frozen=True)
class GradientRounds:
    """Training at the start of the session that begins with round ``t``, on memories of its own.

    Everybody takes part, whatever share the run's own rounds draw. The memories of server and clients start as in a new run,
    live through the rounds of one call and are thrown away. Batches are drawn under keys of their own, so training sees the
    batches it would see anyway.
    """

    federation: Federation
    state: RunState
    t: int

    @property
    def layout(self) -> Layout:
        """Names and slices of the parameters."""
        return self.federation.layout

    def train(self, w: Tensor, b: Tensor, rounds: int, lr: float, steps: int | None, batch_size: int | None) -> Tensor:
        """Parameters [d] after some rounds of the run's own algorithm.

        Args:
            w, b: model the first of them starts from.
            rounds: how many; each counts in the run's costs and in ``gradient_rounds``.
            lr: constant learning rate.
            steps, batch_size: local steps of every client and samples per step; ``None``: as in training.
        """
        fed, scratch = self.federation, self.federation.start()
        scratch.memory.pop("latest", None)  # is for evaluation only
        scratch.w, scratch.b = w, b
        for v in range(rounds):
            call = self._call(v, lr, steps, batch_size)
            played = train_round(fed, scratch, call)
            scratch.w, scratch.b = played.w, played.b
            fed.charge(self.state, call, played.stretches, played.length)
        self.state.totals["gradient_rounds"] += rounds
        return scratch.w

    def _call(self, v: int, lr: float, steps: int | None, batch_size: int | None) -> Call:
        fed, timeline = self.federation, self.federation.timeline
        here, drawn = timeline.at(self.t), everybody(timeline, self.t)
        run, session = fed.settings.local, int(timeline.session_of_round[self.t])
        amount = {} if steps is None else {"amount": steps, "unit": "steps"}
        batches = {} if batch_size is None else {"batch_size": batch_size}
        return Call(
            ids=drawn.clients.tolist(),
            subsets=drawn.shards.tolist(),
            shards=[timeline.shards[shard] for shard in drawn.shards],
            population=len(here.clients),
            mean_size=float(np.mean([len(timeline.shards[shard]) for shard in here.shards])),
            expected=1.0,
            session=session,
            session_round=v,
            t=v,
            at=self.t,
            lr=lr,
            local=run.model_copy(update={**amount, **batches, "lr": lr, "schedule": "constant"}),
            purpose="gradient",
            keys=(session, v),
        )
