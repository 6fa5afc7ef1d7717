"""What a scenario plug-in provides: a pure function from labels and a seed to a timeline; and how timelines are written."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtide.core.array_types import Bools, Ints
from fedtide.core.bounds import MOST_ROUNDS
from fedtide.core.discovery.faults import broken_contract
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import Plugin
from fedtide.world.dataset import Samples
from fedtide.world.partitions.base import Dealt, Partition
from fedtide.world.presence.visits import Visits
from fedtide.world.timeline import Assignment, Timeline


@dataclass(frozen=True)
class WorldInput:
    """What a scenario is made from.

    Attributes:
        samples: the whole training set. test: the test set, if the scenario evaluates parts of it.
        train: int64, positions that may be dealt (after long-tail thinning and the validation split), ascending.
        validation: int64, positions held out for tuning.
        num_classes: L. unit: of the times of samples. partition: deals positions to clients.
        seed: the world's seed; draws use ``generator(seed, purpose, ...)``.
        events: whether the run has ``mode: async``, in which clients come and go in seconds if the scenario knows these.
    """

    samples: Samples
    train: Ints
    validation: Ints
    num_classes: int
    partition: Partition
    seed: int
    test: Samples | None = None
    unit: str = "s"
    events: bool = False

    @property
    def labels(self) -> Ints:
        """Labels of the whole training set, int64 [n]."""
        return self.samples.label


class Scenario(Plugin):
    """Writes the timeline."""

    kind: ClassVar[str] = "scenarios"

    def files(self) -> tuple[Path, ...]:
        """Files whose content the timeline depends on; part of the run key."""
        return ()

    @property
    def in_seconds(self) -> bool:
        """Whether it knows the seconds at which clients come and go, and writes them with ``mode: async``."""
        return False

    def period_of(self, times: Ints, unit: str) -> Ints | None:
        """The period of each time, if validation samples are held out period by period; int64."""
        return None

    def partition_settings(self) -> Collection[str] | None:
        """Names of the partition's settings that the timeline depends on; ``None`` for all, ``name`` included."""
        return None

    @abstractmethod
    def timeline(self, world: WorldInput) -> Timeline:
        """The timeline of a run; an impossible request is a SettingsError that names the largest feasible value."""


@dataclass(frozen=True)
class Span:
    """Consecutive rounds, at least 1, of one session (from 0) with the same clients (int64 ids, ascending) present."""

    clients: Ints
    rounds: int
    session: int


def assign(world: WorldInput, positions: Ints, num_clients: int | None, group: int = 0) -> Dealt:
    """Deal positions of the training set with the world's partition; ``num_clients``: None for all clients of the data."""
    if len(positions) == 0:
        raise SettingsError("there are no training samples to assign")
    samples = world.samples[positions]
    dealt = world.partition.assign(samples, num_clients, world.num_classes, world.seed, group)
    for places in dealt.shards:
        if not isinstance(places, np.ndarray) or (len(places) and (places.dtype.kind not in "iu" or places.min() < 0)):
            raise broken_contract(world.partition, "deal", "arrays of integers from 0")
    clients = len(dealt.shards) if num_clients is None else num_clients
    if len(dealt.shards) != clients or max(places.max(initial=0) for places in dealt.shards) >= len(positions):
        wanted = f"an array for each of {clients} clients, of indices below {len(positions)}"
        raise broken_contract(world.partition, "deal", f"{wanted}; got {len(dealt.shards)} arrays")
    return replace(dealt, shards=[positions[places] for places in dealt.shards])


def refuse_too_many(rounds: int) -> None:
    """Refuse a run of too many rounds in all."""
    if rounds > MOST_ROUNDS:
        raise SettingsError(f"scenario: the number of rounds {rounds} should be less than or equal to {MOST_ROUNDS}")


def session_labels(world: WorldInput, shards: Sequence[Ints], spans: Sequence[Span]) -> Bools:
    """Labels held by the clients of each session, bool [sessions, L]."""
    held = np.zeros((len(shards), world.num_classes), dtype=np.bool_)
    for client, shard in enumerate(shards):
        held[client, world.labels[shard]] = True
    views = np.zeros((spans[-1].session + 1, world.num_classes), dtype=np.bool_)
    for span in spans:
        views[span.session] |= held[span.clients].any(axis=0)
    return views


def write(
    world: WorldInput,
    shards: list[Ints],
    spans: Sequence[Span],
    views: Bools,
    notes: dict[str, Any],
    origins: Ints | None = None,
) -> Timeline:
    """The timeline in which client k always holds ``shards[k]``; a SettingsError if nobody with data is present in a round.

    Args:
        world: what the scenario was given. shards: positions of the training set, one array per client.
        spans: all rounds, in order. views: bool [sessions, L], labels that are evaluated in each session.
        notes: JSON-able facts about its construction; the name of the partition is added.
        origins: int64 [N], numbers of the clients in the data, if they are those of the data.
    """
    refuse_too_many(sum(span.rounds for span in spans))
    sizes = np.array([len(shard) for shard in shards])
    start = 0
    for span in spans:
        if sizes[span.clients].sum() == 0:
            who = "no client with data" if len(span.clients) else "no client"
            raise SettingsError(
                f"{who} is present in round {start} (counted from 0); every round requires one with data"
            )
        start += span.rounds
    assignments, assignment_of_span = _distinct([span.clients for span in spans])
    label_views, view_of_session = _distinct(list(views))
    rounds = [span.rounds for span in spans]
    session_of_round = np.repeat([span.session for span in spans], rounds)
    return Timeline(
        num_clients=len(shards),
        num_classes=world.num_classes,
        shards=shards,
        assignments=[Assignment(clients, clients) for clients in assignments],
        assignment_of_round=np.repeat(assignment_of_span, rounds),
        session_of_round=session_of_round,
        label_views=np.stack(label_views),
        view_of_round=view_of_session[session_of_round],
        validation=world.validation,
        notes={"partition": world.partition.settings.name, **notes},
        origin_of_client=np.zeros(0, dtype=np.int64) if origins is None else origins,
    )


def write_spans(world: WorldInput, spans: Sequence[Span], num_clients: int, notes: dict[str, Any]) -> Timeline:
    """The timeline of clients to whom all data is dealt once; a session is evaluated on the labels that its clients hold."""
    dealt = assign(world, world.train, num_clients)
    views = session_labels(world, dealt.shards, spans)
    return write(world, dealt.shards, spans, views, {**notes, **dealt.notes}, dealt.origins)


def write_visits(
    world: WorldInput, visits: Visits, rounds: int, session_at_change: bool, notes: dict[str, Any]
) -> Timeline:
    """The same with clients that come and go in seconds; the rounds are updates of the server."""
    if session_at_change:
        raise SettingsError(
            "scenario.session_at_change = true: with mode: async clients arrive and leave between updates, where no "
            "session can begin; set it to false"
        )
    timeline = write_spans(world, [Span(np.unique(visits.client), rounds, 0)], len(visits.start), notes)
    return replace(timeline, visits=visits)


def _distinct(rows: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], Ints]:
    """The distinct rows in order of appearance, and the index of each row among them."""
    index: dict[bytes, int] = {}
    which = [index.setdefault(row.tobytes(), len(index)) for row in rows]
    firsts = [rows[which.index(number)] for number in range(len(index))]
    return firsts, np.array(which, dtype=np.int64)
