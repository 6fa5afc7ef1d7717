"""Asynchronous training: an update of the server is a round of the history, and lasts until its results have arrived.

What happens when does not depend on what is learned, so the jobs of an update are trained together once all have arrived,
each from the model that it started from: cancelled and refused ones never are, and of those under way only that model is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.federation.clocks.presence import make_presence
from fedtide.federation.clocks.queue import Job, Queue
from fedtide.federation.rounds.plan import JobStarts, RoundPlan, of_round, participants, rate_at
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.types import Parts, RoundContext, RunState
from fedtide.settings.run import Async
from fedtide.training.engine.plan import sample_count
from fedtide.world.timeline import Assignment


@dataclass
class Flight:
    """All jobs, the joules of those under way by number, and the models (w [d], b [q]) they start from by version."""

    queue: Queue
    joules: dict[int, float]
    models: dict[int, tuple[Tensor, Tensor]]

    def values(self) -> dict[str, Any]:
        """Numbers and tensors, for saving."""
        running = self.queue.running
        wanted = {job.version for job in running.values()}
        models = {version: model for version, model in self.models.items() if version in wanted}
        return {
            **self.queue.values(),
            "joules": torch.tensor([self.joules[number] for number in running], dtype=torch.float64),
            "w": {version: w for version, (w, _) in models.items()},
            "b": {version: b for version, (_, b) in models.items()},
        }

    @staticmethod
    def restore(values: dict[str, Any]) -> Flight:
        """The jobs of :meth:`values`."""
        queue = Queue.restore(values)
        joules = dict(zip(queue.running, values["joules"].tolist(), strict=True))
        return Flight(queue, joules, {version: (w, values["b"][version]) for version, w in values["w"].items()})


@dataclass
class Since:
    """What has happened since the last update: results that arrived, those refused, jobs cancelled; the last arrival's tick.

    ``spared``: bytes that a compressed downlink has spared those that arrived.
    """

    arrived: int = 0
    spared: int = 0
    refused: int = 0
    cancelled: int = 0
    heard: int = 0


class EventClock:
    """The server updates its model as results arrive; see :class:`fedtide.federation.federation.RoundClock`."""

    def __init__(self, parts: Parts, chosen: Async) -> None:
        self.parts, self.chosen = parts, chosen
        self.presence = make_presence(parts.timeline, parts.settings.seed, self.slot)
        if parts.wireless is None:
            raise SettingsError("costs.wireless = false: mode: async requires simulated times; set it to true")
        self.costs = parts.wireless.job_costs
        self._since = Since()

    def plan(self, state: RunState, t: int) -> RoundPlan:
        """Let time pass until the results of the next update have arrived; a SettingsError if nobody trains and nobody will."""
        self._since = Since()
        first, _ = self.parts.timeline.session_span(t)
        flight = self._begin(state, t) if t == first else Flight.restore(state.events)
        used: list[Job] = []
        since = flight.queue.now
        self._since.heard = since
        while len(used) < self.parts.algorithm.buffer:
            job = flight.queue.arrival()
            if job is None:
                self._next_instant(state, flight, t)
            elif self.receive(state, flight, job, t):
                used.append(job)
        plan = self.update_plan(flight, used, t, since)
        state.events = flight.values()
        state.totals["latency"] = flight.queue.now * self.slot
        return plan

    def charge(self, r: RoundContext) -> int:
        """Add the normalized cost to the totals; all else was charged as it arose. The number of results that arrived."""
        arrived = self._since.arrived
        models = self.parts.payload(r.state.extra).worth(arrived, self._since.spared)
        r.state.totals["kappa"] += models / (len(r.plan.ids) * r.plan.mean_steps)
        return arrived

    def record(self, record: RoundRecord, r: RoundContext) -> None:
        staleness = [] if r.plan.starts is None else r.plan.starts.staleness
        record.row |= {
            "seconds_simulated": float(f"{r.state.totals['latency']:.12g}"),
            "staleness_mean": sum(staleness) / len(staleness),
            "staleness_max": max(staleness),
            "refused": self._since.refused,
            "cancelled": self._since.cancelled,
        }
        record.clients = {"client": r.plan.ids, **record.clients, "staleness": staleness}

    @property
    def slot(self) -> float:
        return self.parts.settings.costs.slot

    def _begin(self, state: RunState, t: int) -> Flight:
        """An empty flight at the start of a session; what was under way is lost. Gradient rounds have taken their time."""
        queue = Queue(settled=t)
        if state.events:
            old = Flight.restore(state.events)
            for job in old.queue.running.values():
                self.lose(state, old, job)
            queue.now, queue.started = old.queue.now, old.queue.started
        queue.now += math.ceil(round(state.totals["latency"] / self.slot - queue.now, 6))
        queue.join(self.presence.first(t, queue.now))
        return Flight(queue, {}, {})

    def receive(self, state: RunState, flight: Flight, job: Job, t: int) -> bool:
        """A result arrives when the model is of version ``t``; whether it is used."""
        self._since.arrived += 1
        self._since.heard = flight.queue.now
        self._since.spared += job.spared
        state.totals["bytes_up"] += self.parts.payload(state.extra).up
        state.totals["energy"] += flight.joules.pop(job.number)
        limit = self.chosen.max_staleness
        fresh = limit is None or t - job.version <= limit
        self._since.refused += not fresh
        return fresh

    def lose(self, state: RunState, flight: Flight, job: Job) -> None:
        """A job is cancelled: it has cost its download, and energy for as long as it ran."""
        self._since.cancelled += 1
        state.totals["energy"] += job.share(flight.queue.now) * flight.joules.pop(job.number)

    def _next_instant(self, state: RunState, flight: Flight, t: int) -> None:
        """Departures, returns, arrivals and starts of this instant, and then the next one."""
        queue = flight.queue
        left, joining = self.presence.changes(queue.settled, t, queue.now)
        for job in queue.leave(left, self.chosen.leave == "cancel"):
            self.lose(state, flight, job)
        self.parts.channel.leave(state, left)
        queue.join(joining)
        queue.settled = t
        if starting := queue.starting(self.chosen.concurrency):
            self._start(state, flight, starting, t)
        waited, patience = queue.now - self._since.heard, self.presence.patience
        if patience is not None and waited > patience:
            raise SettingsError(
                f"mode: async: no client has completed a job for {waited * self.slot:g} simulated seconds; use less "
                "local work, a higher costs.clock, or mode.leave = finish"
            )
        if not queue.advance(self.presence.following(queue.now)):
            raise SettingsError(
                f"mode: async: no available client after {queue.now * self.slot:g} simulated seconds, so server "
                f"update {t + 1} cannot be reached; keep clients with data present"
            )

    def _start(self, state: RunState, flight: Flight, clients: list[int], t: int) -> None:
        parts, queue = self.parts, flight.queue
        shards, samples = self._work(clients, t)
        numbers = range(queue.started, queue.started + len(clients))
        down, payload = parts.channel.receive(parts, state, clients, t), parts.payload(state.extra)
        costs = self.costs(numbers, clients, samples, np.array(down), payload.up, self.chosen.concurrency)
        queue.start(shards, t, costs.slots.tolist(), [payload.down - received for received in down])
        flight.joules |= dict(zip(numbers, costs.device_J.tolist(), strict=True))
        flight.models[t] = parts.channel.model(state), state.b
        state.totals["bytes_down"] += sum(down)

    def _work(self, clients: list[int], t: int) -> tuple[list[int], list[int]]:
        """What these clients hold while the model is of version ``t``, and how many samples they would process."""
        shards = self.presence.shards(clients, t)
        held = [len(self.parts.timeline.shards[shard]) for shard in shards]
        return shards, [sample_count(size, 1.0, self.parts.settings.local) for size in held]

    def update_plan(self, flight: Flight, jobs: Sequence[Job], t: int, since: int) -> RoundPlan:
        """The plan of the update of version ``t`` from these jobs; ``since``: the instant of the update before."""
        settings, timeline = self.parts.settings, self.parts.timeline
        jobs = sorted(jobs, key=lambda job: (job.client, job.number))
        models = [flight.models[job.version] for job in jobs]
        last = {job.client: job.number for job in jobs}
        present, departed = self.presence.population(t, since, flight.queue.now)
        here = set(present.clients.tolist()).difference([] if departed is None else departed.tolist())
        starts = JobStarts(
            numbers=[job.number for job in jobs],
            w=torch.stack([w for w, _ in models]),
            b=torch.stack([b for _, b in models]),
            lr=[rate_at(settings.local, timeline, job.version) for job in jobs],
            staleness=[t - job.version for job in jobs],
            keeps=[job.client in here and last[job.client] == job.number for job in jobs],
        )
        trained = Assignment(np.array([job.client for job in jobs]), np.array([job.shard for job in jobs]))
        if not len(present.clients):  # the results of clients that have left may arrive when nobody is there
            present = timeline.at(t)
        return RoundPlan(
            **participants(timeline, trained),
            **of_round(settings, timeline, t, present),
            departed=departed,
            participation_fraction=min(1.0, len(trained.clients) / len(timeline.eligible_of(present).clients)),
            purpose="jobs",
            keys=(),
            starts=starts,
        )
