"""Who attacks in a run, and what becomes of their training samples and their updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedtide.attack.base import Attack
from fedtide.core import plugins
from fedtide.core.array_types import Ints
from fedtide.drift.base import round_of
from fedtide.engine import contract
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


@dataclass(frozen=True)
class Attackers:
    """The attackers of a run, part of its world.

    Attributes:
        ids: of the clients that attack. start: round of their first attack. samples: in the training set as it is.
    """

    attack: Attack
    ids: frozenset[int]
    start: int
    samples: int

    @staticmethod
    def of(settings: RunSettings, timeline: Timeline, samples: int) -> Attackers | None:
        """The attackers that settings name or draw on a timeline; None without an attack."""
        if settings.attack.name == "none":
            return None
        attack, seed = plugins.create(Attack, settings.attack), settings.world_seed
        chosen = attack.settings
        return Attackers(
            attack=attack,
            ids=chosen.ids(timeline.num_clients, settings.seed if seed is None else seed),
            start=round_of(chosen.start, timeline, "attack.start", 0.0),
            samples=samples,
        )

    def rows(self, ids: Sequence[int], t: int) -> list[int]:
        """Rows of the participants that attack in round ``t``."""
        return [row for row, client in enumerate(ids) if client in self.ids and t >= self.start]

    def relabelled(self, data: Dataset) -> Dataset:
        """The dataset with every training sample once more, as attackers take it: its inputs are stored once."""
        if not self.attack.relabels:
            return data
        labels, rows = data.train_labels, data.train_rows
        taken = contract.tensor(
            self.attack, "labels", self.attack.labels(labels, data.num_classes), labels, tuple(labels.shape)
        )
        rows = torch.arange(len(labels)) if rows is None else rows
        return replace(data, train_labels=torch.cat([labels, taken]), train_rows=torch.cat([rows, rows]))

    def poisoned(self, shards: Sequence[Ints], rows: Sequence[int]) -> Sequence[Ints]:
        """Positions that the participants train on, those of the attackers in ``rows`` with labels as they take them."""
        if not self.attack.relabels:
            return shards
        n, attacking = self.samples, set(rows)
        return [
            np.where(shard < n, shard + n, shard) if row in attacking else shard for row, shard in enumerate(shards)
        ]

    def forged(self, W: Tensor, start: Tensor, rows: Sequence[int], here: range) -> Tensor:
        """What the participants send for their models ``W`` [C, d], whose training began at ``start`` [C, d].

        Only rows ``here`` are known to this process.
        """
        mine, attacking = [row for row in rows if row in here], set(rows)
        honest = [row for row in range(len(W)) if row not in attacking] if self.attack.colludes else []
        if not self.attack.forges or not mine or (self.attack.colludes and not honest):
            return W
        own, others = W[mine] - start[mine], W[honest] - start[honest]
        sent = contract.tensor(self.attack, "forge", self.attack.forge(own, others), W, tuple(own.shape))
        found = W.clone()
        found[mine] = start[mine] + sent
        return found
