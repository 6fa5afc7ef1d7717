"""The worlds of requests to erase clients, and what the clients have had a part in."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from fedtide.core.array_types import Bools, Ints
from fedtide.federation.features.attack import Attacking
from fedtide.federation.features.requests import Request
from fedtide.federation.scoring.erased import Erased
from fedtide.federation.types import Parts
from fedtide.methods.accounting.cohorts import cohorts as drawn_cohorts
from fedtide.world.timeline import Timeline


def touched(parts: Parts, world: Timeline, present: Bools, drawn: Bools) -> Ints:
    """Rounds that clients have a part in, by training, or by being there where that counts.

    ``present`` and ``drawn``: in which rounds each of them is, bool [n, T].
    """
    here, trains = present.any(0), drawn.any(0)
    if "noise" not in parts.algorithm.admits or parts.objective.pooled or parts.settings.local.unit == "mean_epochs":
        return np.flatnonzero(here | trains)
    starts = world.session_starts[world.pilot :] if parts.initializer.trains else np.zeros(0, np.int64)
    return np.flatnonzero(trains | (np.isin(np.arange(present.shape[1]), starts) & here))


def held_by(world: Timeline, client: int, t: int) -> int:
    """The shard that a client holds in a round, or held last before it."""
    for here in (world.at(round_) for round_ in range(t, -1, -1)):
        if client in here.clients:
            return int(here.shards[here.clients.searchsorted(client)])
    raise AssertionError(f"client {client} was never there")


class Worlds:
    """A run's world as ``planned``, with the sessions that alarms have begun, and those without clients of requests."""

    def __init__(self, requests: Sequence[Request], parts: Parts) -> None:
        self.requests, self._parts = requests, parts
        self._erased: dict[int, Erased] = {}
        self.planned: Timeline = parts.timeline

    def counterfactual(self, number: int) -> Timeline:
        """The world without the clients of a request and of those before it."""
        world, rounds = self.planned, np.arange(self.planned.rounds)
        for request in self.requests[: number + 1]:
            returns = request.eraser.settings.after == "returns"
            world = world.without(request.ids, rounds < request.at if returns else rounds >= 0)
        return world

    def actual(self, t: int) -> Timeline:
        """The world after the requests up to round ``t``."""
        world, rounds = self.planned, np.arange(self.planned.rounds)
        for request in self.requests:
            if request.at <= t and request.eraser.settings.after == "away":
                world = world.without(request.ids, rounds >= request.at)
        return world

    def of_twin(self, name: str) -> Timeline:
        """The world of the counterfactual of a request, ``without.<number>``, or of the run that erases nothing."""
        world = self.counterfactual(int(name.split(".")[1])) if "." in name else self.actual(self.planned.rounds)
        # Its own alarms begin its sessions, and those that it shares with the run are in its state.
        return (
            replace(world, session_of_round=world.planned, planned=world.planned[:0]) if len(world.planned) else world
        )

    @cached_property
    def cohorts(self) -> tuple[Bools, Bools]:
        """Who is present and who is drawn as planned, bool [N, T]."""
        found = drawn_cohorts(self._parts.participation, self.planned, self._parts.settings.seed)
        return found.present, found.drawn

    def trained_in(self, number: int) -> Ints:
        """Rounds before a request in which its clients take part."""
        request = self.requests[number]
        return np.flatnonzero(self.cohorts[1][request.ids, : request.at].any(0))

    def touched(self, number: int) -> Ints:
        """Rounds before a request that its clients have a part in, by training, or by being there where that counts."""
        request, (present, drawn) = self.requests[number], self.cohorts
        before = present[request.ids, : request.at], drawn[request.ids, : request.at]
        return touched(self._parts, self.planned, *before)

    def begins(self, number: int) -> int | None:
        """The round before which the counterfactual of a request begins; None if its clients had no part in the run."""
        if not len(self.touched(number)):
            return None
        return min(int(rounds[0]) for before in range(number + 1) if len(rounds := self.touched(before)))

    def last(self, t: int) -> int | None:
        """The last request up to round ``t`` whose clients had a part in the run."""
        found = [k for k, request in enumerate(self.requests) if request.at <= t and len(self.touched(k))]
        return found[-1] if found else None

    def spans(self, number: int) -> list[tuple[int, float]]:
        """First touched round of a request and of those before it, and the round from which the model is free of it."""
        return [
            (int(rounds[0]), math.inf if request.eraser.memory == "keep" else request.at)
            for k, request in enumerate(self.requests[: number + 1])
            if len(rounds := self.touched(k))
        ]

    def stored_vectors(self, number: int) -> int:
        """Vectors [d] that were kept for a request, whoever might have made it."""
        request, drawn = self.requests[number], self.cohorts[1][:, : self.requests[number].at]
        if request.eraser.memory == "counterfactual":  # a state before the first round of each client
            return len(np.unique(drawn.argmax(1)[drawn.any(1)]))
        if request.eraser.keeps:
            return int(drawn.any(1).sum())
        return len(request.models) + sum(int(drawn[:, t].sum()) + 1 for t in request.rounds)

    def tainted(self, number: int, touch: str) -> list[int]:
        """Sessions that the clients of a request took part in, or with ``descent``, all whose models descend from these."""
        sessions = self.planned.session_of_round
        if touch == "took_part" or self._parts.initializer.fresh:
            return [int(z) for z in np.unique(sessions[self.trained_in(number)])]
        return list(range(int(sessions[self.touched(number)[0]]), self.planned.sessions))

    def erased(self, number: int) -> Erased:
        """The clients of a request, and those they are compared with."""
        if number in self._erased:
            return self._erased[number]
        request, (present, drawn) = self.requests[number], self.cohorts
        took = np.asarray(drawn[:, : request.at].any(1))
        took[request.ids] = False
        attack = self._parts.feature(Attacking)
        own, others = (self.held(clients, request.at) for clients in (request.ids, np.flatnonzero(took)))
        self._erased[number] = Erased(
            evaluator=self._parts.evaluator,
            ids=request.ids,
            at=request.at,
            members=np.setdiff1d(own, others),
            retained=np.flatnonzero(took),
            seen=np.flatnonzero(present[:, : request.at].any(1)),
            attackers=attack.attackers if attack is not None and attack.attackers.attack.repaints else None,
        )
        return self._erased[number]

    def held(self, clients: Ints, at: int) -> Ints:
        """Positions of the samples that clients hold in the rounds before ``at`` that draw them, ascending."""
        shards: set[int] = set()
        for t in range(at):
            here = self.planned.at(t)
            shards.update(here.shards[np.isin(here.clients, clients[self.cohorts[1][clients, t]])].tolist())
        return np.unique(np.concatenate([np.zeros(0, np.int64), *(self.planned.shards[shard] for shard in shards)]))
