"""The plan of a round: participants, their data, learning rate and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtide.core.faults import broken_contract
from fedtide.engine import contract
from fedtide.federation.parts import Parts
from fedtide.federation.schedules import learning_rate
from fedtide.settings.run import LocalSettings
from fedtide.world.timeline import Assignment, Timeline

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RoundPlan:
    """A round before it is run.

    Attributes:
        ids: participants, ascending. shard_ids: number of the shard each holds. shards: positions in the training set.
        population: clients present. mean_size: their mean number of samples.
        participation_fraction: expected share of the population that is drawn.
        session, session_round: place in the timeline. t: round, for what changes over rounds. at: round of the timeline that
            decides who is present.
        lr: learning rate. local: settings of training: the run's, possibly with another amount of work, batch size and rate.
        purpose, keys: of the draws of batches.
    """

    ids: list[int]
    shard_ids: list[int]
    shards: Sequence[Ints]
    population: int
    mean_size: float
    participation_fraction: float
    session: int
    session_round: int
    t: int
    at: int
    lr: float
    local: LocalSettings
    purpose: str
    keys: tuple[int, ...]


def plan_round(parts: Parts, t: int) -> RoundPlan:
    """The plan of round ``t`` (0-based) of the run."""
    timeline, local = parts.timeline, parts.settings.local
    first, length = timeline.session_span(t)
    sizes, eligible = timeline.sizes_at(t), eligible_clients(timeline, t)
    rule = parts.participation
    drawn = rule.draw(eligible.clients, t, parts.settings.seed)
    contract.positions(rule, "draw", [drawn], 1, len(eligible.clients))
    if not len(drawn) or (np.diff(drawn) <= 0).any():
        raise broken_contract(rule, "draw", f"ascending positions, at least one, got {drawn.tolist()}")
    at, span = (t - first, length) if local.restart else (t, timeline.rounds)
    return RoundPlan(
        **_participants(timeline, Assignment(eligible.clients[drawn], eligible.shards[drawn])),
        population=len(sizes),
        mean_size=float(sizes.mean()),
        participation_fraction=parts.participation.participation_fraction(len(eligible.clients)),
        session=int(timeline.session_of_round[t]),
        session_round=t - first,
        t=t,
        at=t,
        lr=learning_rate(local, at, span),
        local=local,
        purpose="batches",
        keys=(t,),
    )


def plan_gradient_round(
    parts: Parts, t: int, v: int, lr: float, steps: int | None, batch_size: int | None
) -> RoundPlan:
    """The plan of gradient round ``v`` (0-based) at the start of the session that begins with round ``t``.

    Args:
        parts: of the run. t, v: see above.
        lr: constant learning rate.
        steps, batch_size: local steps of every client and samples per step; ``None``: as in training.
    """
    timeline, local = parts.timeline, parts.settings.local
    sizes, session = timeline.sizes_at(t), int(timeline.session_of_round[t])
    amount = {} if steps is None else {"amount": steps, "unit": "steps"}
    batches = {} if batch_size is None else {"batch_size": batch_size}
    return RoundPlan(
        **_participants(timeline, eligible_clients(timeline, t)),
        population=len(sizes),
        mean_size=float(sizes.mean()),
        participation_fraction=1.0,
        session=session,
        session_round=v,
        t=v,
        at=t,
        lr=lr,
        local=local.model_copy(update={**amount, **batches, "lr": lr, "schedule": "constant"}),
        purpose="gradient",
        keys=(session, v),
    )


def eligible_clients(timeline: Timeline, t: int) -> Assignment:
    """Clients present in round ``t`` that have data."""
    present, eligible = timeline.at(t), timeline.sizes_at(t) > 0
    return Assignment(present.clients[eligible], present.shards[eligible])


def _participants(timeline: Timeline, drawn: Assignment) -> dict[str, Any]:
    """``ids``, ``shard_ids`` and ``shards`` of a plan."""
    shards = [timeline.shards[shard] for shard in drawn.shards]
    return {"ids": drawn.clients.tolist(), "shard_ids": drawn.shards.tolist(), "shards": shards}
