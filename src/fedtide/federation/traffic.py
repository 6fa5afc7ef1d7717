"""What a round costs: exchanges, bytes on the wire, simulated seconds and joules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedtide.federation.rounds.plan import RoundPlan
from fedtide.methods.algorithms.base import Algorithm, Extra, Layout, server_vectors, shared_size, shares_buffers
from fedtide.methods.costs.wireless import Segment, Wireless

BYTES = 4  # bytes of one number on the wire, independent of the simulation's precision


@dataclass(frozen=True)
class Payload:
    """Bytes of one exchange of one client, and their size in exchanges of the model alone."""

    down: int
    up: int
    models: float

    def worth(self, exchanges: int, spared: int) -> float:
        """Size of some exchanges in which so many bytes were not sent, in exchanges of the model alone."""
        return exchanges * self.models - (spared * self.models / (self.down + self.up) if spared else 0.0)


def payload(algorithm: Algorithm, bits: Sequence[Callable[[int], int | None]], layout: Layout, extra: Extra) -> Payload:
    """Bytes that one participant receives and sends in one exchange.

    The model (``w``, ``W``) has d parameters, or those that are :meth:`Algorithm.shared`, and q floating buffers, unless
    clients keep these; the size of any other name is :meth:`Algorithm.width`, d unless overridden. What features make of an
    update's size holds for the parameters of ``W`` and for the declared vectors that the server derives from them, all that are
    sent but :attr:`Algorithm.apart`. The normalized cost kappa of a round (DynamicFL, section 4) is ``models`` times its
    exchanges over n L, the steps of n participants of mean size: 1 if the model is exchanged after every step.

    Args:
        bits: of an update on the wire after each feature, see :meth:`fedtide.federation.types.Feature.bits`.
    """
    size, buffers = layout.size, layout.buffer_size
    vectors = {*algorithm.client, *(vector.name for vector in server_vectors(algorithm))}
    with_model = BYTES * buffers if shares_buffers(algorithm, layout) else 0

    def update(numbers: int, plain: int) -> int:
        """Bytes of an update, ``plain`` if no feature changes them."""
        found = [size for of_update in bits if (size := of_update(numbers)) is not None]
        return -(-found[-1] // 8) if found else plain

    def bytes_of(name: str, sent: bool) -> int:
        if name in ("w", "W"):
            numbers = shared_size(algorithm, layout)
            return (update(numbers, BYTES * numbers) if sent else BYTES * numbers) + with_model
        plain = BYTES * algorithm.width(name, layout, extra)
        return update(size, plain) if sent and name in vectors and name not in algorithm.apart else plain

    down = sum(bytes_of(name, False) for name in algorithm.down)
    up = sum(bytes_of(name, True) for name in algorithm.up)
    return Payload(down, up, (down + up) / (2 * BYTES * (size + buffers)))


def charge(
    totals: dict[str, float],
    plan: RoundPlan,
    segments: Sequence[Segment],
    payload: Payload,
    wireless: Wireless | None,
    received: Sequence[int] | None = None,
) -> int:
    """Add what a round costs to the run's totals; the exchanges, over participants.

    Args:
        segments: local work before each exchange of models; each costs its members one payload in both directions.
        received: bytes that each participant receives in an exchange, if not those of the payload.
    """
    down = np.full(len(plan.ids), payload.down) if received is None else np.array(received)
    exchanges = sum(len(segment.rows) for segment in segments)
    total = sum(int(down[segment.rows].sum()) for segment in segments)
    models = payload.worth(exchanges, exchanges * payload.down - total)
    if plan.purpose != "gradient":  # kappa is about the exchanges that the history counts
        totals["kappa"] += models / (len(plan.ids) * plan.mean_steps)
    totals["bytes_down"] += total
    totals["bytes_up"] += exchanges * payload.up
    if wireless:
        cost = wireless.round_cost(plan.keys, plan.ids, segments, down, payload.up, plan.purpose)
        totals["latency"] += cost.latency_s
        totals["energy"] += cost.energy_J
    return exchanges
