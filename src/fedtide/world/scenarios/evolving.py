"""Every client's data changes from round to round."""

import math
from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedtide.core.array_types import Ints
from fedtide.core.bounds import Clients, Rounds
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.dirichlet_prior import Scale, draw_parts
from fedtide.world.scenarios._presence import markov
from fedtide.world.scenarios.base import Scenario, WorldInput, assign, refuse_too_many
from fedtide.world.timeline import Assignment, Timeline


class Evolving(Scenario):
    """Clients whose data changes every round, and who may come and go (Guo, Lin and Tang 2021, Algorithms 4 to 6).

    The partition deals the training set to the clients, and each client's data is split again by class into ``subsets`` of
    equal size (as in partition ``dirichlet_prior``, with concentration ``beta``). In each round a client holds

    * ``visits``: one of its subsets, drawn uniformly;
    * ``pointer``: a window on its concatenated subsets that moves on every round and wraps around at the end; consecutive
      rounds share ``overlap`` of their samples;
    * ``fresh``: a subset newly drawn from the whole training set; clients are stateless, so algorithms with client memories
      are refused.

    Data changes whether or not its client is present. All labels are evaluated.
    """

    class Settings(PluginSettings):
        name: str = "evolving"
        num_clients: Clients = Field(7, ge=1, description="total clients")
        subsets: Clients = Field(30, ge=1, description="subsets per client")
        beta: float | None = Field(None, gt=0, description="concentration of the second split; null: partition.alpha")
        scale: Scale = Field("prior", description="meaning of beta, as in partition dirichlet_prior")
        drift: Literal["visits", "pointer", "fresh"] = Field(
            "visits", description="visits: a random subset each round; pointer: a moving window; fresh: resampled"
        )
        overlap: float = Field(0.0, ge=0, lt=1, description="pointer: share of samples that consecutive rounds share")
        window: int | None = Field(
            None, ge=1, description="pointer, fresh: samples per client and round; null: a subset's"
        )
        num_sessions: Rounds = Field(1, ge=1, description="sessions; clients come and go between them")
        rounds_per_session: Rounds = Field(100, ge=1, description="communication rounds of a session")
        first_clients: int | None = Field(None, ge=1, description="clients of the first session; null: all")
        p_leave: float = Field(0.0, ge=0, le=1, description="probability that a client leaves at a boundary")
        arrivals: int = Field(0, ge=0, description="clients that arrive at a boundary, at most all absent ones")
        min_clients: int = Field(1, ge=1, description="smallest number of clients that remain at a boundary")

        @model_validator(mode="after")
        def _consistent(self) -> Self:
            first = self.num_clients if self.first_clients is None else self.first_clients
            if first > self.num_clients:
                raise SettingsError(f"first_clients = {first} should be at most num_clients = {self.num_clients}")
            if self.min_clients > first:
                raise SettingsError(f"min_clients = {self.min_clients} should be at most first_clients = {first}")
            if self.overlap and self.drift != "pointer":
                raise SettingsError(f"overlap = {self.overlap} has no effect with drift {self.drift}; use 0")
            if self.window and self.drift == "visits":
                raise SettingsError(f"window = {self.window} has no effect with drift visits; use null")
            return self

    settings: Settings
    needs_classes = True

    def partition_settings(self) -> tuple[str, ...] | None:
        """Fresh data are drawn from the whole training set, so nothing is dealt."""
        if self.settings.drift != "fresh":
            return None
        return ("alpha",) if self.settings.beta is None else ()

    def timeline(self, world: WorldInput) -> Timeline:
        chosen = self.settings
        first = np.arange(chosen.num_clients if chosen.first_clients is None else chosen.first_clients)
        rule = (chosen.p_leave, chosen.arrivals, chosen.min_clients)
        present = list(markov(first, chosen.num_clients, chosen.num_sessions, *rule, world.seed))
        refuse_too_many(chosen.num_sessions * chosen.rounds_per_session)
        session_of_round = np.repeat(np.arange(chosen.num_sessions), chosen.rounds_per_session)
        shards, held = self._holdings(world, len(session_of_round))
        assignments = [
            Assignment(present[session], of_round[present[session]])
            for session, of_round in zip(session_of_round, held, strict=True)
        ]
        return Timeline(
            num_clients=chosen.num_clients,
            num_classes=world.num_classes,
            shards=shards,
            assignments=assignments,
            assignment_of_round=np.arange(len(assignments)),
            session_of_round=session_of_round,
            label_views=np.ones((1, world.num_classes), dtype=np.bool_),
            view_of_round=np.zeros(len(assignments), dtype=np.int64),
            validation=world.validation,
            notes={"scenario": "evolving", "drift": chosen.drift, "stateless": chosen.drift == "fresh"}
            | {"partition": world.partition.settings.name},
        )

    def _holdings(self, world: WorldInput, rounds: int) -> tuple[list[Ints], Ints]:
        """Shards, and the shard that each client holds in each round, int64 [rounds, clients]."""
        chosen = self.settings
        subset = len(world.train) // (chosen.num_clients * chosen.subsets)
        size = chosen.window or subset
        beta = getattr(world.partition.settings, "alpha", None) if chosen.beta is None else chosen.beta
        if beta is None:
            raise SettingsError(f"beta = null: partition {world.partition.settings.name} has no alpha; give a number")
        if subset == 0:
            raise SettingsError(
                f"subsets = {chosen.subsets} is too large: {len(world.train)} samples for {chosen.num_clients} clients; "
                f"the largest feasible value is {len(world.train) // chosen.num_clients}"
            )
        if chosen.drift == "fresh":
            return _fresh(world, rounds, chosen.num_clients, size, beta, chosen.scale)
        split = list(_split(world, chosen.num_clients, chosen.subsets, beta, chosen.scale))
        if chosen.drift == "visits":
            rngs = (generator(world.seed, "scenario.visits", t) for t in range(rounds))
            drawn = [rng.integers(chosen.subsets, size=chosen.num_clients) for rng in rngs]
            shards = [np.sort(part) for parts in split for part in parts]
            return shards, np.arange(chosen.num_clients) * chosen.subsets + np.stack(drawn)
        return _pointer([np.concatenate(parts) for parts in split], rounds, size, chosen.overlap)


def _split(world: WorldInput, clients: int, subsets: int, beta: float, scale: Scale) -> Iterator[list[Ints]]:
    """The subsets of each client."""
    for client, positions in enumerate(assign(world, world.train, clients).shards):
        if len(positions) < subsets:
            raise SettingsError(
                f"subsets = {subsets} is too large: client {client} has {len(positions)} samples; "
                f"the largest feasible value is {len(positions)}"
            )
        rng = generator(world.seed, "scenario.subsets", client)
        parts = draw_parts(world.labels[positions], subsets, len(positions) // subsets, beta, scale, rng)
        yield [positions[part] for part in parts]


def _fresh(
    world: WorldInput, rounds: int, clients: int, size: int, beta: float, scale: Scale
) -> tuple[list[Ints], Ints]:
    """New subsets for all clients in every round, disjoint within a round."""
    shards: list[Ints] = []
    labels = world.labels[world.train]
    for t in range(rounds):
        parts = draw_parts(labels, clients, size, beta, scale, generator(world.seed, "scenario.fresh", t))
        shards += [np.sort(world.train[part]) for part in parts]
    return shards, np.arange(rounds * clients).reshape(rounds, clients)


def _pointer(sequences: list[Ints], rounds: int, size: int, overlap: float) -> tuple[list[Ints], Ints]:
    """Windows of ``size`` samples of each client's sequence, moved by ``(1 - overlap) size`` (rounded down) every round."""
    step = max(1, math.floor(round((1 - overlap) * size, 9)))
    shards: list[Ints] = []
    held = np.empty((rounds, len(sequences)), dtype=np.int64)
    for client, sequence in enumerate(sequences):
        if size > len(sequence):
            raise SettingsError(f"window = {size} is too large: client {client} has {len(sequence)} samples")
        starts, which = np.unique(np.arange(rounds) * step % len(sequence), return_inverse=True)
        held[:, client] = len(shards) + which
        shards += [np.sort(sequence[(start + np.arange(size)) % len(sequence)]) for start in starts]
    return shards, held
