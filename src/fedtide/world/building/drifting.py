"""A timeline under drift: the same clients with the same samples, seen under the concepts of each round."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.discovery.faults import broken_contract
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator
from fedtide.world.clients import ClientNames
from fedtide.world.concepts import Concept, Concepts, seen_classes
from fedtide.world.dataset import Dataset
from fedtide.world.drift.base import Drift, DriftSettings, Population
from fedtide.world.timeline import Assignment, HeldOut, Timeline


def with_drift(timeline: Timeline, drift: Drift, data: Dataset, seed: int) -> Timeline:
    """The timeline under a drift; batches are the same samples with and without it.

    Under a growing share, sample p of client i has changed once the share is above the p-th draw of (seed,
    ``drift.sample``, i).

    Raises:
        SettingsError: the data cannot be seen under a concept, or there is no such client or round; the message names the key.
    """
    chosen = drift.settings
    if data.task != "classification":
        raise SettingsError(
            f"drift = {chosen.name}: drift requires classification, but data {data.name} is {data.task}"
        )
    concepts = Concepts(_maps(chosen, data), len(data.train_labels), len(data.test_labels))
    p = Population(timeline, chosen.groups(ClientNames.of(timeline, data), seed), seed)
    found = drift.concepts(p)
    expected = (timeline.rounds, timeline.num_clients)
    if found.dtype != np.int64 or found.shape != expected or not 0 <= found.min() <= found.max() < len(concepts.maps):
        raise broken_contract(drift, "concepts", f"int64 {expected} from 0 to {len(concepts.maps) - 1}")
    world = _World(timeline, concepts, found, [drift.share(t, p) for t in range(timeline.rounds)], seed)
    seen = replace(
        world.assigned(),
        concepts=concepts,
        notes={**timeline.notes, "drift": chosen.name},
        **world.held_out(data),
    )
    return seen if timeline.label_views.all() else _with_seen_labels(seen, data)


def _maps(chosen: DriftSettings, data: Dataset) -> tuple[Concept, ...]:
    """Concept 0 and those of the groups."""
    maps = []
    named = {"initial": chosen.initial} | {f"concepts.{number}": each for number, each in enumerate(chosen.concepts)}
    for key, settings in named.items():
        try:
            concept = settings.concept(data.num_classes)
            concept.refuse_unfit(data)
        except SettingsError as error:
            raise SettingsError(f"drift.{key}: {error}") from None
        maps.append(concept)
    return tuple(maps)


class _World:
    """Who sees what in each round: concept ``of`` each client [rounds, N], and the share of its samples under it."""

    def __init__(self, timeline: Timeline, concepts: Concepts, of: Ints, shares: list[float], seed: int) -> None:
        self.timeline, self.concepts, self.of, self.shares = timeline, concepts, of, shares
        self.seed = seed

    def key(self, t: int) -> tuple[bytes, float]:
        """Equal in rounds in which every client sees the same."""
        return self.of[t].tobytes(), self.shares[t]

    def assigned(self) -> Timeline:
        """The timeline whose shards are virtual positions."""
        old = self.timeline
        shards: list[Ints] = []
        numbers: dict[tuple[int, ...], int] = {}
        assignments: list[Assignment] = []
        of_round: list[int] = []
        known: dict[tuple[int, bytes, float], int] = {}

        @cache
        def draws(client: int, shard: int) -> Floats:
            return self._draws("drift.sample", client, self.concepts.train)[old.shards[shard]]

        def number(client: int, shard: int, concept: int, share: float) -> int:
            partly = concept > 0 and share < 1
            key = (shard, concept, client, t) if partly else (shard, concept)
            if key not in numbers:
                moved = draws(client, shard) < share if partly else np.full(len(old.shards[shard]), True)
                numbers[key] = len(shards)
                shards.append(old.shards[shard] + np.where(moved, concept, 0) * self.concepts.train)
            return numbers[key]

        for t in range(old.rounds):
            key = (int(old.assignment_of_round[t]), *self.key(t))
            if key not in known:
                held = old.at(t)
                pairs = zip(held.clients.tolist(), held.shards.tolist(), strict=True)
                here = [number(client, shard, int(self.of[t, client]), self.shares[t]) for client, shard in pairs]
                known[key] = len(assignments)
                assignments.append(Assignment(held.clients, np.array(here, dtype=np.int64)))
            of_round.append(known[key])
        return replace(
            old, shards=shards, assignments=assignments, assignment_of_round=np.array(of_round, dtype=np.int64)
        )

    def held_out(self, data: Dataset) -> dict[str, Any]:
        """Held-out samples under the concepts of their owners; nothing where samples have no owners among the clients."""
        old, origins = self.timeline, data.origins
        if origins.test_client is None or origins.train_client is None or not len(old.origin_of_client):
            return {}
        client_of = np.full(len(origins.clients), -1, dtype=np.int64)
        client_of[old.origin_of_client] = np.arange(old.num_clients)
        everything = HeldOut(np.arange(self.concepts.test, dtype=np.int64), old.validation)
        sets: list[HeldOut] = []
        known: dict[tuple[int, bytes, float], int] = {}

        def number(index: int, t: int) -> int:
            key = (index, *self.key(t))
            if key not in known:
                whole = everything if index < 0 else old.held_out[index]
                known[key] = len(sets)
                tests = client_of[origins.test_client], self.concepts.test, "drift.test", t
                trains = client_of[origins.train_client], self.concepts.train, "drift.sample", t
                parts = ((whole.test, tests), (whole.validation, trains), (whole.train, trains))
                sets.append(HeldOut(*(self._seen(positions, *where) for positions, where in parts)))
            return known[key]

        none = np.full(old.rounds, -1, dtype=np.int64)
        now = old.held_out_of_round if len(old.held_out_of_round) else none
        ahead = old.next_of_round if len(old.next_of_round) else none
        begins = [*old.session_starts[1:], -1]  # a later period is seen as when it begins
        later = [
            -1 if index < 0 else number(int(index), int(begins[session]))
            for index, session in zip(ahead, old.session_of_round, strict=True)
        ]
        return {
            "held_out_of_round": np.array([number(int(index), t) for t, index in enumerate(now)], dtype=np.int64),
            "next_of_round": np.array(later, dtype=np.int64),
            "held_out": sets,
        }

    def _seen(self, positions: Ints, owner: Ints, size: int, purpose: str, t: int) -> Ints:
        """Ascending virtual positions of samples of some owners."""
        own = owner[positions]
        concept = np.where(own >= 0, self.of[t][own], 0)
        if self.shares[t] < 1:
            for client in np.unique(own[concept > 0]).tolist():
                mine = own == client
                moved = self._draws(purpose, client, size)[positions[mine]] < self.shares[t]
                concept[mine] = np.where(moved, concept[mine], 0)
        return np.sort(positions + concept * size)

    def _draws(self, purpose: str, client: int, size: int) -> Floats:
        """One number for every sample, below which share it has not changed."""
        return generator(self.seed, purpose, client).random(size)


def _with_seen_labels(timeline: Timeline, data: Dataset) -> Timeline:
    """The timeline evaluated, round by round, on the labels that the clients present see."""
    classes = seen_classes(data, timeline.concepts)
    views: list[Bools] = []
    numbers: dict[int, int] = {}
    of_round: list[int] = []
    for t, index in enumerate(timeline.assignment_of_round.tolist()):
        if index not in numbers:
            view = np.zeros(timeline.num_classes, dtype=np.bool_)
            view[classes[np.concatenate(timeline.shards_at(t))]] = True
            numbers[index] = len(views)
            views.append(view)
        of_round.append(numbers[index])
    return replace(timeline, label_views=np.stack(views), view_of_round=np.array(of_round, dtype=np.int64))
