"""Federations without rounds whose jobs take given times."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fedtide.federation.clocks.events import EventClock
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.types import RunState
from fedtide.methods.costs.wireless import JobCosts
from fedtide.settings.groups.evaluation import CostSettings
from fedtide.world.timeline import Timeline
from support import deal, federation, run_rounds, settings, steady, timeline, vectors, watch

SIZES = (5, 2, 7, 4, 6)
LOCAL = {"epochs": 2, "batch_size": 3, "order": "stored", "lr": 0.2, "schedule": "exponential", "decay": 0.9}
SLOT = CostSettings().slot
EQUAL = [[3]] * len(SIZES)
UNEQUAL = [[2], [3, 7], [11], [4, 5, 6], [20]]


class Lengths:
    """Jobs that take as many slots as listed for their client and one joule per slot, in turn; notes who starts."""

    def __init__(self, lengths: Sequence[Sequence[int]]) -> None:
        self.lengths = lengths
        self.started: list[int] = []

    def __call__(self, numbers: Sequence[int], clients: Sequence[int], *_: Any) -> JobCosts:
        slots = []
        for client in clients:
            own = self.lengths[client]
            slots.append(own[self.started.count(client) % len(own)])
            self.started.append(client)
        return JobCosts(np.array(slots), np.array(slots, dtype=np.float64))


def made(
    algorithm: dict[str, Any], lengths: Sequence[Sequence[int]], world: Timeline, concurrency: int = 10, **values: Any
) -> tuple[Federation, Lengths]:
    """A federation whose jobs take given times."""
    mode = {"name": "async", "concurrency": concurrency, **values.pop("mode", {})}
    fed = federation(settings(**{"algorithm": algorithm, "mode": mode, "local": LOCAL, **values}), world, vectors())
    assert isinstance(fed.clock, EventClock)
    fed.clock.costs = noted = Lengths(lengths)  # type: ignore[assignment]
    return fed, noted


def models(fed: Federation) -> tuple[list[Tensor], RunState, list[RoundRecord]]:
    """Global models after all updates, the state and records."""
    seen = watch(fed)
    state, records = run_rounds(fed)
    return [w for _, w in seen], state, records


def events(algorithm: dict[str, Any], concurrency: int, lengths: Any, updates: int = 6, **values: Any) -> list[Tensor]:
    """Global models of a run in which everybody is always present."""
    return models(made(algorithm, lengths, steady(SIZES, updates), concurrency, **values)[0])[0]


def line(fed: Federation) -> list[int]:
    """The waiting line at the start."""
    assert isinstance(fed.clock, EventClock)
    return fed.clock.presence.first(0, 0)


def present(*who: Sequence[int], session_of_round: Sequence[int] | None = None) -> Timeline:
    """These clients in each round."""
    return timeline(deal(SIZES), [{k: k for k in here} for here in who], clients=5, session_of_round=session_of_round)
