"""The plan of a round: participants, their data, learning rate and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtide.core.faults import broken_contract
from fedtide.engine import contract
from fedtide.federation.parts import Parts
from fedtide.federation.schedules import learning_rate
from fedtide.settings.run import LocalSettings

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
    present = timeline.at(t)
    sizes = timeline.sizes_at(t)
    eligible = np.flatnonzero(sizes > 0)
    rule = parts.participation
    places = rule.draw(present.clients[eligible], t, parts.settings.seed)
    contract.positions(rule, "draw", [places], 1, len(eligible))
    if not len(places) or (np.diff(places) <= 0).any():
        raise broken_contract(rule, "draw", f"ascending positions, at least one, got {places.tolist()}")
    drawn = eligible[places]
    at, span = (t - first, length) if local.restart else (t, timeline.rounds)
    return RoundPlan(
        ids=present.clients[drawn].tolist(),
        shard_ids=present.shards[drawn].tolist(),
        shards=[timeline.shards[shard] for shard in present.shards[drawn]],
        population=len(present.clients),
        mean_size=float(sizes.mean()),
        participation_fraction=parts.participation.participation_fraction(len(eligible)),
        session=int(timeline.session_of_round[t]),
        session_round=t - first,
        t=t,
        at=t,
        lr=learning_rate(local, at, span),
        local=local,
        purpose="batches",
        keys=(t,),
    )
