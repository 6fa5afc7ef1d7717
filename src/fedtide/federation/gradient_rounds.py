"""Gradient rounds, which an initialiser runs at the start of a session: they change nothing but the run's costs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedtide.engine.flat import Layout
from fedtide.federation.assembly.chosen import LAST_SERVED, LATEST
from fedtide.federation.downlink import advance, receive, restart
from fedtide.federation.ledger import charge
from fedtide.federation.parts import Parts
from fedtide.federation.plan import plan_gradient_round
from fedtide.federation.round import train_round
from fedtide.federation.state import RunState, initial_state


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
        parts, amount = self.parts, {} if steps is None else {"amount": steps, "unit": "steps"}
        batches = {} if batch_size is None else {"batch_size": batch_size}
        changed = {**amount, **batches, "lr": lr, "schedule": "constant"}
        local = parts.settings.local.model_copy(update=changed)
        scratch = initial_state(parts)
        for name in (LATEST, LAST_SERVED):  # for evaluation only
            scratch.memory.pop(name, None)
        scratch.w, scratch.b = w, b
        restart(parts, scratch)
        scratch.uplink = {
            link: {name: value.clone() for name, value in kept.items()} for link, kept in self.state.uplink.items()
        }
        for v in range(rounds):
            plan = plan_gradient_round(parts.timeline, self.t, v, local, parts.settings.seed)
            result = train_round(parts, scratch, plan)
            scratch.w, scratch.b = result.w, result.b
            received = receive(parts, scratch, plan.ids, v)
            charge(self.state, plan, result.segments, parts.payload, parts.wireless, received)
            advance(parts, scratch, plan)
        self.state.totals["gradient_rounds"] += rounds
        return scratch.w
