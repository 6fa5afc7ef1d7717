"""Clients that attack: who they are, and what becomes of their training samples and their updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.core.array_types import Ints
from fedtide.core.randomness import generator
from fedtide.federation.features.rule import AggregationRule
from fedtide.federation.rounds.plan import plan_round
from fedtide.federation.types import Chosen, Feature, Memory, Parts, RoundContext
from fedtide.methods.attacks.base import Attack
from fedtide.settings.run import Async, RunSettings
from fedtide.training.engine import contract
from fedtide.training.engine.flat import Layout
from fedtide.world.clients import ClientNames
from fedtide.world.dataset import Dataset
from fedtide.world.drift.base import round_of
from fedtide.world.timeline import Timeline


@dataclass(frozen=True)
class Attackers:
    """The attackers of a run, part of its world.

    Attributes:
        ids: of the clients that attack. start: round of their first attack. samples: in the training set as it is.
        changed: ascending positions of the samples that attackers change; their copies follow the training set.
        brightest: of each channel [channels, 1, 1], the largest value of a stored image, where attackers change inputs.
    """

    attack: Attack
    ids: frozenset[int]
    start: int
    samples: int
    changed: Ints
    brightest: Tensor

    @staticmethod
    def of(settings: RunSettings, timeline: Timeline, data: Dataset) -> Attackers:
        """The attackers that settings name or draw on a timeline."""
        attack, seed = plugins.create(Attack, settings.attack), settings.world_seed
        chosen, seed = attack.settings, settings.seed if seed is None else seed
        attack.require(data)
        changes = attack.relabels or attack.repaints
        ids = chosen.ids(ClientNames.of(timeline, data), seed)
        return Attackers(
            attack=attack,
            ids=ids,
            start=round_of(chosen.start, timeline, "attack.start", 0.0),
            samples=data.size("train"),
            changed=_drawn(attack.poisoned, timeline, ids, data, seed) if changes else np.zeros(0, np.int64),
            brightest=_brightest(data) if attack.repaints else torch.zeros(0),
        )

    def rows(self, ids: Sequence[int], t: int) -> list[int]:
        """Rows of the participants that attack in round ``t``."""
        return [row for row, client in enumerate(ids) if client in self.ids and t >= self.start]

    def poisoned_data(self, data: Dataset) -> Dataset:
        """The dataset with copies of the attackers' samples that they change, as they take them."""
        found = data.with_capacity(len(self.changed))
        if len(self.changed):
            inputs, labels = data.read("train", torch.from_numpy(self.changed))
            found.write(self.samples, self.inputs(inputs, self.brightest), self.taken_for(labels, data.num_classes))
        return found

    def taken_for(self, labels: Tensor, classes: int) -> Tensor:
        """What attackers take labels [n] for."""
        return contract.tensor(self.attack, "labels", self.attack.labels(labels, classes), labels, tuple(labels.shape))

    def inputs(self, inputs: Tensor, brightest: Tensor) -> Tensor:
        """What attackers take inputs [n, ...] for."""
        taken = self.attack.inputs(inputs, brightest)
        return contract.tensor(self.attack, "inputs", taken, inputs, tuple(inputs.shape))

    def poisoned(self, shards: Sequence[Ints], rows: Sequence[int]) -> Sequence[Ints]:
        """Positions that the participants train on, those of the attackers in ``rows`` as they take them."""
        attacking = set(rows) if len(self.changed) else set()
        return [self._as_taken(shard) if row in attacking else shard for row, shard in enumerate(shards)]

    def _as_taken(self, shard: Ints) -> Ints:
        """Positions of a shard, those of samples that attackers change as they take them."""
        places = np.searchsorted(self.changed, shard)
        found = self.changed[np.minimum(places, len(self.changed) - 1)] == shard
        return np.where(found, self.samples + places, shard)

    def forged(self, W: Tensor, start: Tensor, rows: Sequence[int], here: range) -> Tensor:
        """What the participants send for their models ``W`` [C, d], whose training began at ``start`` [C, d].

        Only rows ``here`` are known to this process.
        """
        mine, attacking = [row for row in rows if row in here], set(rows)
        honest = [row for row in range(len(W)) if row not in attacking] if self.attack.colludes else []
        if not mine or (self.attack.colludes and not honest):
            return W
        own, others = W[mine] - start[mine], W[honest] - start[honest]
        sent = contract.tensor(self.attack, "forge", self.attack.forge(own, others), W, tuple(own.shape))
        found = W.clone()
        found[mine] = start[mine] + sent
        return found


def outnumbered(parts: Parts) -> list[str]:
    """A line before the run if there are rounds in which more participants attack than the aggregation rule withstands.

    With ``mode: async`` participants are not known before: as many of an update's attack as of the clients present, on average.
    """
    attacking, combining, settings = parts.feature(Attacking), parts.feature(AggregationRule), parts.settings
    if attacking is None or combining is None or not attacking.attackers.attack.finite:
        return []
    attackers, timeline, outnumbered_in = attacking.attackers, parts.timeline, list[tuple[float, int, int]]()
    for t in range(attackers.start, timeline.rounds):
        ids = plan_round(settings, timeline, parts.participation, t).ids
        attack, count = len(attackers.rows(ids, t)), len(ids)
        if isinstance(settings.mode, Async):  # participation: all
            attack, count = round(parts.algorithm.buffer * attack / max(1, count)), parts.algorithm.buffer
        if attack > combining.rule.withstands(count):
            outnumbered_in.append((attack / count, attack, count))
    if not outnumbered_in:
        return []
    _, attack, count = max(outnumbered_in)
    return [
        f"WARNING more clients attack than aggregation {settings.aggregation.name} withstands in {len(outnumbered_in)} of "
        f"{timeline.rounds} rounds: up to {attack} of {count} participants (attack {settings.attack.name}), where it "
        f"withstands {combining.rule.withstands(count)}"
    ]


def _drawn(share: float, timeline: Timeline, ids: frozenset[int], data: Dataset, seed: int) -> Ints:
    """Positions of a share of every attacker's samples, of all that it ever holds; ascending.

    They come first in one order of all samples, so that attackers with the same samples change the same ones.
    """
    order, attackers = generator(seed, "attack.samples").permutation(data.size("train")), sorted(ids)
    pairs = np.unique(np.concatenate([np.stack([at.clients, at.shards], 1) for at in timeline.assignments]), axis=0)
    ends = (np.searchsorted(pairs[:, 0], attackers, side) for side in ("left", "right"))
    drawn = [np.zeros(0, dtype=np.int64)]
    for first, last in zip(*ends, strict=True):
        own = np.unique(np.concatenate([drawn[0], *(timeline.shards[shard] for shard in pairs[first:last, 1])]))
        drawn.append(own[np.argsort(order[own])[: round(share * len(own))]])
    return np.unique(np.concatenate(drawn))


def _brightest(data: Dataset) -> Tensor:
    """The largest value of an image in each channel [channels, 1, 1]: of bytes their scale, else that in the training set."""
    if data.train_inputs.dtype == torch.uint8:
        return torch.full((data.input_shape[0], 1, 1), int(data.scale), dtype=torch.uint8)
    return data.train_inputs.amax((0, 2, 3)).view(-1, 1, 1)


class Attacking(Feature):
    """See :class:`Attackers`. In gradient rounds they attack as in the round that follows them."""

    name = "attack"

    def __init__(self, attackers: Attackers) -> None:
        self.attackers, self.rowwise = attackers, not attackers.attack.colludes
        self.updates = attackers.attack.forges

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        return Memory(each=int(self.updates), samples=len(self.attackers.changed))  # what is sent instead

    def before(self, r: RoundContext) -> None:
        t = int(r.parts.timeline.session_starts[r.plan.session]) if r.rehearsal else r.plan.t
        r.notes[self.name] = attacking = self.attackers.rows(r.plan.ids, t)
        r.plan = replace(r.plan, shards=self.attackers.poisoned(r.plan.shards, attacking))

    def after(self, r: RoundContext) -> None:
        if not self.updates:
            return
        here = range(len(r.plan.ids))[r.here]
        r.received = self.attackers.forged(r.received, r.started, r.notes[self.name], here)

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        attacker = torch.zeros_like(r.round.n)
        attacker[r.notes[self.name]] = 1.0
        return {"attacker": attacker}
