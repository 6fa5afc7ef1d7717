"""One communication round, to be read aloud."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.rounds.stages import aggregate, keep, prepare, record
from fedtide.federation.rounds.training import train_clients
from fedtide.federation.types import Parts, RoundContext, RunState
from fedtide.methods.costs.wireless import Segment


def train_round(parts: Parts, state: RunState, plan: RoundPlan) -> RoundResult:
    """Train one round on ``state``, which then is the state after it, but for the number of rounds.

    Sums over clients run in ascending id order, so nothing depends on which worker finished first.
    """
    r = prepare(parts, state, plan)
    for feature in r.features:
        feature.before(r)
    train_clients(r)
    for feature in reversed(r.features):
        feature.after(r)
    w, b = aggregate(r)
    keep(r)
    values = record(r)
    state.w, state.b = w, b  # not before: services of the algorithm read the old model
    for feature in reversed(r.features):
        feature.close(r)
    for feature in reversed(r.features):
        values |= feature.record(r)
    return RoundResult.of(r, values)


@dataclass(frozen=True)
class RoundResult:
    """What a round produced.

    Attributes:
        w, b: the new model. members: the local models. participants: their mean, or the new model where that is not evaluated.
        train_loss: mean training loss. failed: whether the run has diverged.
        drift: mean distance of the local models from the broadcast model.
        segments: local work before each exchange of models, in order.
        trained: participants that took local steps. bytes_down: received by each in an exchange, None if they were before.
        clients, server: columns to record of the participants, empty if there are none, and numbers of the server.
    """

    w: Tensor
    b: Tensor
    participants: tuple[Tensor, Tensor]
    members: tuple[Tensor, Tensor]
    train_loss: float
    failed: bool
    drift: float
    segments: list[Segment]
    trained: int
    bytes_down: list[int] | None
    clients: dict[str, Sequence[float]]
    server: dict[str, float | None]

    @staticmethod
    def of(r: RoundContext, values: dict[str, Tensor | float]) -> RoundResult:
        """The result of a finished round and the ``values`` to record of it, NaN for none."""
        w, b = r.state.w, r.state.b
        columns = {name: value[:, 0].tolist() for name, value in values.items() if isinstance(value, Tensor)}
        numbers = {name: None if math.isnan(n) else n for name, n in values.items() if not isinstance(n, Tensor)}
        return RoundResult(
            w=w,
            b=b,
            participants=(r.round.average(), b) if r.parts.evaluates("participants") else (w, b),
            members=(r.cohort.W, r.cohort.buffers),
            train_loss=r.train_loss,
            failed=r.failed,
            drift=r.drift,
            segments=r.segments,
            trained=r.trained,
            bytes_down=r.bytes_down,
            clients={"client": r.plan.ids, **columns} if columns else {},
            server=numbers,
        )
