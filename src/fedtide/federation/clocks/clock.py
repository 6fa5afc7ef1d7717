"""What the server waits for before it updates the model: all participants of a round, or the results of some jobs."""

from __future__ import annotations

from typing import Protocol

from fedtide.federation.clocks.events import EventClock
from fedtide.federation.rounds.plan import RoundPlan, plan_round
from fedtide.federation.rounds.record import RoundRecord
from fedtide.federation.rounds.round import RoundResult
from fedtide.federation.traffic.ledger import charge
from fedtide.federation.types import Parts, RunState
from fedtide.settings.run import Async


class Clock(Protocol):
    """Decides whose results the next update is made of."""

    def plan(self, state: RunState, t: int) -> RoundPlan:
        """The plan of round ``t``."""

    def charge(self, state: RunState, plan: RoundPlan, result: RoundResult) -> int:
        """Add what the round costs to the totals; number of exchanges of models, summed over participants."""

    def record(self, record: RoundRecord, plan: RoundPlan, state: RunState) -> None:
        """Add columns to what is recorded of the round."""


class RoundClock:
    """A round ends when all its participants have finished."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def plan(self, state: RunState, t: int) -> RoundPlan:
        return plan_round(self.parts.settings, self.parts.timeline, self.parts.participation, t)

    def charge(self, state: RunState, plan: RoundPlan, result: RoundResult) -> int:
        return charge(
            state, plan, result.segments, self.parts.payload_in(state), self.parts.wireless, result.bytes_down
        )

    def record(self, record: RoundRecord, plan: RoundPlan, state: RunState) -> None:
        """See :meth:`Clock.record`: there are no others."""


def make_clock(parts: Parts) -> Clock:
    """The clock of a run."""
    chosen = parts.settings.mode
    return EventClock(parts, chosen) if isinstance(chosen, Async) else RoundClock(parts)
