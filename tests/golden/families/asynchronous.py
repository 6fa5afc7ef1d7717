"""Family ``async``: jobs of given lengths, a waiting line in a given order, departures and arrivals in seconds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fedtide.federation.clocks.events import EventClock, Flight
from fedtide.federation.clocks.presence import Presence
from fedtide.federation.clocks.queue import Job
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import train_round
from fedtide.federation.types import RunState
from fedtide.methods.costs.wireless import JobCosts
from fedtide.world.timeline import Timeline
from golden.families.case import Case, Check, Fields, Outcome, chosen, local_settings, samples
from support import steady

TICK = 0.25
"""All times of the file are multiples of it [s]."""


def ticks(seconds: float) -> int:
    """A time of the file."""
    number = round(seconds / TICK)
    assert number * TICK == seconds
    return number


class Scripted(Presence):
    """Who leaves and joins in which second, whatever the model's version."""

    def __init__(
        self, timeline: Timeline, first: list[int], leaves: list[tuple[float, int]], joins: list[tuple[float, int]]
    ) -> None:
        super().__init__(timeline, 0)
        self.line = first
        self.leaves, self.joins = ([(ticks(second), client) for second, client in rows] for rows in (leaves, joins))

    def first(self, t: int, now: int) -> list[int]:
        """See :meth:`Presence.first`."""
        return self.line

    def changes(self, before: int, t: int, now: int) -> tuple[set[int], list[int]]:
        """See :meth:`Presence.changes`."""
        left, came = ([client for at, client in rows if at == now] for rows in (self.leaves, self.joins))
        return set(left), sorted(came)

    def following(self, now: int) -> int | None:
        """See :meth:`Presence.following`."""
        return min((at for at, _ in self.leaves + self.joins if at > now), default=None)


@dataclass
class Script:
    """Times of a run put into a federation, which notes what happens.

    Attributes:
        arrivals, cancelled: as in the file; the norm of a result that is used is found later.
    """

    fields: Fields
    arrivals: list[dict[str, Any]] = field(default_factory=list)
    cancelled: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, fed: Federation) -> None:
        """Take the place of a federation's clock."""
        fields, clock = self.fields, fed.clock
        assert isinstance(clock, EventClock)
        self.arrivals, self.cancelled = [], []
        clock.presence = Scripted(
            fed.parts.timeline, fields["present"], fields.either("leaves", []), fields.either("joins", [])
        )
        lengths = [cycle(map(ticks, own)) for own in fields["durations"]]

        def durations(numbers: Sequence[int], clients: Sequence[int], *_: Any) -> JobCosts:
            return JobCosts(np.array([next(lengths[client]) for client in clients]), np.zeros(len(clients)))

        receive, lose = clock.receive, clock.lose

        def received(state: RunState, flight: Flight, job: Job, t: int) -> bool:
            used = receive(state, flight, job, t)
            self.arrivals.append(
                {
                    "time": job.end * TICK,
                    "job": job.number,
                    "client": job.client,
                    "base": job.version,
                    "staleness": t - job.version,
                    "weight": self.weight(fed, t - job.version) if used else 0.0,
                    "used": used,
                    "version": t,
                }
            )
            if not used:
                self.arrivals[-1]["local_norm"] = self.refused_norm(fed, state, flight, job, t)
            return used

        def lost(state: RunState, flight: Flight, job: Job) -> None:
            lose(state, flight, job)
            self.cancelled.append({"time": flight.queue.now * TICK, "job": job.number, "client": job.client})

        clock.costs, clock.receive, clock.lose = durations, received, lost  # type: ignore[method-assign,assignment]

    def weight(self, fed: Federation, staleness: int) -> float:
        """Of a result that is used."""
        algorithm: Any = fed.parts.algorithm
        tau = torch.full((1, 1), float(staleness), dtype=torch.float64)
        r = SimpleNamespace(job=SimpleNamespace(staleness=tau))
        return float(algorithm.freshness(r)) * self.fields.either("alpha", 1.0)

    def refused_norm(self, fed: Federation, state: RunState, flight: Flight, job: Job, t: int) -> float:
        """Norm of a result that is thrown away, and therefore never computed in a run."""
        assert isinstance(fed.clock, EventClock)
        scratch = replace(state, counts=state.counts.clone(), seen=state.seen.clone())
        return float(
            train_round(fed.parts, scratch, fed.clock.update_plan(flight, [job], t, flight.queue.now)).cohort.W.norm()
        )


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields = Fields(run)
    fields.pass_over("name")
    data, sizes = samples(problems[fields["problem"]])
    local = local_settings(fields)
    mode = {
        "name": "async",
        "concurrency": fields["concurrency"],
        "max_staleness": fields.either("max_staleness", None),
    }
    rule = fields.either("staleness", "constant")
    named = {"polynomial": {"exponent": "a"}, "hinge": {"slope": "a", "patience": "b"}, "constant": {}}[rule]
    conventions = {"staleness": rule, **{name: fields[key] for name, key in named.items() if key in fields}}
    conventions |= {"mu": fields.either("mu", 0.0)}
    algorithm = chosen(fields, "algorithms", fields["algorithm"], conventions)
    settings = {"mode": mode, "local": local, "algorithm": algorithm, "costs": {"slot": TICK}}
    world, script = steady(sizes, fields["updates"], data.num_classes), Script(fields)

    def check(_: Fields, outcome: Outcome) -> Iterator[Check]:
        yield from compared(fields, outcome, script)

    return Case(fields, data, world, [], settings, check, script=script)


def compared(fields: Fields, outcome: Outcome, script: Script) -> Iterator[Check]:
    """What happened when, exactly; models after the first and last update, norms of all models and results."""
    models = [w for _, w in outcome.rounds]
    yield "first.w", models[0], fields["first"]["w"]
    yield "final.w", models[-1], fields["final"]["w"]
    yield "norms", [float(w.norm()) for w in models], fields["norms"]
    yield "updated_at", [row["seconds_simulated"] for row in outcome.rows], fields["updated_at"]
    used = [item for item in script.arrivals if item["used"]]
    size = outcome.federation.parts.algorithm.buffer
    for t, (r, _) in enumerate(outcome.rounds):
        own = used[size * t : size * (t + 1)]
        own[-1]["version"] += 1
        rows = sorted(own, key=lambda item: (item["client"], item["job"]))
        for item, y in zip(rows, r.W, strict=True):
            item["local_norm"] = float(y.norm())
    # Times, numbers and truth values are equal, not close.
    for name, ours in (("arrivals", script.arrivals), ("cancelled", script.cancelled)):
        wanted = fields[name]
        yield f"number of {name}", len(ours), len(wanted)
        for number, (mine, its) in enumerate(zip(ours, wanted, strict=False)):
            assert mine.keys() == its.keys()
            for key in its:
                close = key in ("weight", "local_norm")
                yield f"{name} {number}: {key}", mine[key] if close else mine[key] == its[key], its[key] if close else 1
    for key, column in (("used", "selected"), ("refused", "refused"), ("cancelled", "cancelled")):
        events = (
            script.cancelled if key == "cancelled" else [a for a in script.arrivals if a["used"] == (key == "used")]
        )
        yield f"sum of {column}", sum(int(row[column] or 0) for row in outcome.rows), len(events)
