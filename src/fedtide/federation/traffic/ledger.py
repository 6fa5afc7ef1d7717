"""What a round costs: exchanges, bytes, simulated seconds and joules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.traffic.payload import Payload
from fedtide.federation.types import RunState
from fedtide.methods.algorithms.base import Algorithm
from fedtide.methods.costs.wireless import Segment, Wireless


def charge(
    state: RunState,
    plan: RoundPlan,
    segments: Sequence[Segment],
    payload: Payload,
    wireless: Wireless | None,
    received: Sequence[int] | None = None,
) -> int:
    """Add what a round costs to the totals of ``state``, the run's and not a scratch copy; the exchanges, over participants.

    Args:
        segments: local work before each exchange of models; each costs its members one payload in both directions.
        received: bytes that each participant receives in an exchange, if not those of the payload.
    """
    down = np.full(len(plan.ids), payload.down) if received is None else np.array(received)
    exchanges = sum(len(segment.rows) for segment in segments)
    total = sum(int(down[segment.rows].sum()) for segment in segments)
    models = payload.worth(exchanges, exchanges * payload.down - total)
    state.totals["kappa"] += models / (len(plan.ids) * plan.mean_steps)
    state.totals["bytes_down"] += total
    state.totals["bytes_up"] += exchanges * payload.up
    if wireless:
        cost = wireless.round_cost(plan.keys, plan.ids, segments, down, payload.up, plan.purpose)
        state.totals["latency"] += cost.latency_s
        state.totals["energy"] += cost.energy_J
    return exchanges


def charge_session(state: RunState, algorithm: Algorithm, clients: int) -> None:
    """Add what all clients present exchange once, at the beginning of a session."""
    up, down = algorithm.session_traffic(clients)
    state.totals["bytes_up"] += up
    state.totals["bytes_down"] += down
