"""What a round costs: exchanges, bytes, simulated seconds and joules."""

from __future__ import annotations

from collections.abc import Sequence

from fedtide.costs.wireless import Segment
from fedtide.federation.parts import Parts
from fedtide.federation.plan import RoundPlan
from fedtide.federation.state import RunState


def charge(parts: Parts, state: RunState, plan: RoundPlan, segments: Sequence[Segment], length: int) -> int:
    """Add what a round costs to the totals of ``state``, the run's and not a scratch copy; the exchanges, over participants.

    Args:
        segments: local work before each exchange of models; each costs its members one payload in both directions.
        length: L, local steps of a client of mean size, for kappa.
    """
    payload = parts.payload
    exchanges = sum(len(segment.rows) for segment in segments)
    state.totals["kappa"] += exchanges * payload.models / (len(plan.ids) * length)
    state.totals["bytes_down"] += exchanges * payload.down
    state.totals["bytes_up"] += exchanges * payload.up
    if parts.wireless:
        cost = parts.wireless.round_cost(plan.keys, plan.ids, segments, payload.down, payload.up, plan.purpose)
        state.totals["latency"] += cost.latency_s
        state.totals["energy"] += cost.energy_J
    return exchanges


def charge_session(parts: Parts, state: RunState, clients: int) -> None:
    """Add what all clients present exchange once, at the beginning of a session."""
    up, down = parts.algorithm.session_traffic(clients)
    state.totals["bytes_up"] += up
    state.totals["bytes_down"] += down
