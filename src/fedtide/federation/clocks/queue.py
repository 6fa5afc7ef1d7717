"""When jobs start, arrive and are cancelled: a simulation of time alone, which trains nothing.

Time is counted in whole ticks, so that instants compare exactly. An instant has five phases: jobs that end arrive, by number;
departures cancel jobs; the clients that have arrived return to the end of the waiting line; further clients join it; free
places take clients from its front. Since nobody starts before all that ends has arrived, clients of equal speed stay in step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import Any, NamedTuple


class Job(NamedTuple):
    """A client's work on a shard, from tick ``start`` to ``end``, on the model that has had ``version`` updates.

    ``spared``: bytes that a compressed downlink has spared it.
    """

    number: int
    client: int
    shard: int
    version: int
    start: int
    end: int
    spared: int = 0

    def share(self, now: int) -> float:
        """Share of its time that is over."""
        return (now - self.start) / (self.end - self.start)


@dataclass
class Queue:
    """The clients present and their jobs.

    Attributes:
        now: the current instant. started: jobs started in the run. settled: updates made when departures and joins were last
            looked at.
        present: clients. line: those that wait, first to start in front. arrived: those whose jobs have ended in this instant.
        running: jobs by number, ascending.
    """

    now: int = 0
    started: int = 0
    settled: int = 0
    present: set[int] = field(default_factory=set)
    line: list[int] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    running: dict[int, Job] = field(default_factory=dict)

    def arrival(self) -> Job | None:
        """Phase 1: the next job that ends in this instant, taken out; None after the last."""
        for job in self.running.values():
            if job.end == self.now:
                self.arrived.append(job.client)
                return self.running.pop(job.number)
        return None

    def leave(self, clients: Collection[int], cancel: bool = True) -> list[Job]:
        """Phase 2: clients are gone; their jobs, cancelled and taken out, or without ``cancel`` left to run."""
        if not (gone := set(clients)):
            return []
        self.present -= gone
        self.line = [client for client in self.line if client not in gone]
        lost = [job for job in self.running.values() if job.client in gone] if cancel else []
        for job in lost:
            del self.running[job.number]
        return lost

    def join(self, clients: Iterable[int]) -> None:
        """Phases 3 and 4: who has arrived and is still present goes to the end of the line, and then ``clients``."""
        self.line += [client for client in self.arrived if client in self.present]
        self.arrived = []
        busy = {*self.line, *(job.client for job in self.running.values())}
        for client in clients:
            self.present.add(client)
            if client not in busy:  # a job that was left to run may still be under way
                self.line.append(client)

    def starting(self, concurrency: int) -> list[int]:
        """Phase 5: clients that a free place waits for, in order; nothing changes."""
        return self.line[: max(0, concurrency - len(self.running))]

    def start(
        self, shards: Sequence[int], version: int, ticks: Sequence[int], spared: Iterable[int] = repeat(0)
    ) -> None:
        """Phase 5: the first clients of the line start, each on its shard for its ticks, at least one."""
        for client, shard, length, less in zip(self.line, shards, ticks, spared, strict=False):
            job = Job(self.started, client, shard, version, self.now, self.now + max(1, length), less)
            self.running[job.number] = job
            self.started += 1
        del self.line[: len(ticks)]

    def advance(self, other: int | None = None) -> bool:
        """Go to the next instant: a job ends, or it is ``other``. Whether there is one."""
        ends = [job.end for job in self.running.values()] + ([] if other is None else [other])
        self.now = min(ends, default=self.now)
        return bool(ends)

    def values(self) -> dict[str, Any]:
        """Numbers and lists, for saving."""
        return {**vars(self), "present": sorted(self.present), "running": [tuple(job) for job in self.running.values()]}

    @staticmethod
    def restore(values: dict[str, Any]) -> Queue:
        """The queue of :meth:`values`, of which further ones are ignored."""
        own = {field.name: copy(values[field.name]) for field in fields(Queue)}
        running = {number: Job(number, *others) for number, *others in own["running"]}
        return Queue(**{**own, "present": set(own["present"]), "running": running})
