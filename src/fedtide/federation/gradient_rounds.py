"""Gradient rounds, which an initializer runs at the start of a session: they change nothing but the run's costs."""

import copy
from dataclasses import dataclass

from torch import Tensor

from fedtide.federation.rounds.plan import plan_gradient_round
from fedtide.federation.rounds.round import train_round
from fedtide.federation.state import initial_state
from fedtide.federation.traffic import charge
from fedtide.federation.types import Parts, RunState
from fedtide.methods.algorithms.base import Session
from fedtide.training.engine.flat import Layout


@dataclass(frozen=True)
class GradientRounds:
    """Training at the start of the session that begins with round ``t``, with separate memories.

    All clients with data take part, whatever fraction the run's own rounds draw. The memories of server and clients start as
    in a new run, last for the rounds of one call and are discarded; what links keep at the server is as in the run. Batches
    have their own keys, so those of training stay the same.
    """

    parts: Parts
    state: RunState
    t: int

    @property
    def layout(self) -> Layout:
        return self.parts.layout

    def train(self, w: Tensor, b: Tensor, rounds: int, lr: float, steps: int | None, batch_size: int | None) -> Tensor:
        """Parameters [d] after some rounds of the run's own algorithm at a constant learning rate, from the model ``w``, ``b``.

        Each round is charged to the run and counted in ``gradient_rounds``. ``steps`` of every client and ``batch_size`` are
        those of training if ``None``.
        """
        parts, local = self.parts, self.parts.settings.local
        local = local if steps is None else local.with_work(steps, "steps")
        batches = {} if batch_size is None else {"batch_size": batch_size}
        local = local.model_copy(update={**batches, "lr": lr, "schedule": "constant"})
        scratch = self._scratch(w, b)
        for v in range(rounds):
            plan = plan_gradient_round(parts.timeline, self.t, v, local, parts.settings.seed)
            if not plan.ids or parts.algorithm.rests(Session(plan.session, plan.session_round)):
                return w
            r = train_round(parts, scratch, plan)
            costs = parts.payload(scratch.extra), parts.wireless, r.bytes_down
            self.state.totals["steps"] += sum(r.cohort.plan.steps)
            charge(self.state.totals, plan, r.segments, *costs)
        self.state.totals["gradient_rounds"] += rounds
        return scratch.w

    def _scratch(self, w: Tensor, b: Tensor) -> RunState:
        """A new state with the model ``w``, ``b``, which no client has, and what features keep at the server of the run."""
        parts, scratch = self.parts, initial_state(self.parts)
        scratch.w, scratch.b = w, b
        for feature in parts.features:
            if feature.rehearses:
                scratch.features[feature.name] = copy.deepcopy(self.state.features[feature.name])
                feature.begin(parts, scratch, self.t, session=False, replaced=True)
            else:
                for name in feature.rows(parts, parts.layout):
                    del scratch.memory[name]
        return scratch
