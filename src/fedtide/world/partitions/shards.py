"""A few equal shards of sorted data per client."""

from math import gcd

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, by_owner, rarest, require_at_most, require_multiple


class Shards(Partition):
    """K class shards of equal size per client (DynamicFL's balanced K-class split).

    Every class is cut, in stored order, into clients x K / classes shards, and the shards are dealt at random. A client
    may get two shards of one class, so K is the largest number of classes of a client.
    """

    class Settings(PluginSettings):
        name: str = "shards"
        classes_per_client: int = Field(2, ge=1, description="K: shards per client, and largest number of its classes")

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        k, present = self.settings.classes_per_client, np.unique(labels)
        require_at_most("classes_per_client", k, len(present), f"{len(present)} classes")
        fewest = rarest(labels, present)
        reason = f"{k} shards per client, cut evenly from {len(present)} classes, the rarest of {fewest} samples"
        require_multiple(num_clients, len(present) // gcd(len(present), k), fewest * len(present) // k, reason)
        per_class = num_clients * k // len(present)
        pieces = [piece for label in present for piece in np.array_split(np.flatnonzero(labels == label), per_class)]
        rng = generator(seed, "partition.slots", group)
        owner = rng.permutation(np.repeat(np.arange(num_clients), k))
        return by_owner(np.repeat(owner, [len(piece) for piece in pieces]), np.concatenate(pieces), num_clients)
