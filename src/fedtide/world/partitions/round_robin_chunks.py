"""Chunks of sorted data, dealt in turn."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.bounds import WHOLE
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, class_pools, equal_sizes, require_a_sample_each


class RoundRobinChunks(Partition):
    """Equal sizes; chunks of tau consecutive samples of the sorted data are dealt in turn (BalanceFL).

    Samples are sorted from the rarest class to the most frequent one. In every cycle, in a new order, each client that is
    not full takes the next tau samples, or what it has room for; tau is ``ratio`` times the size of the rarest class. Every
    sample is dealt. The released code starts with a cycle in id order, which only relabels the clients.
    """

    class Settings(PluginSettings):
        name: str = "round_robin_chunks"
        ratio: Annotated[Literal[1, 2, 4], WHOLE] = Field(2, description="samples of a turn over the rarest class's")

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        require_a_sample_each(num_clients, len(labels))
        classes, counts = np.unique(labels, return_counts=True)
        rising = classes[np.lexsort((-classes, counts))]  # of equally frequent classes, the last one is the rarest
        tau = self.settings.ratio * int(counts.min())
        pools = np.concatenate(class_pools(labels, rising, generator(seed, "partition.pools", group)))
        rng = generator(seed, "partition.turns", group)
        free = equal_sizes(len(labels), num_clients)
        held: list[list[Ints]] = [[] for _ in range(num_clients)]
        place = 0
        while place < len(pools):
            for client in rng.permutation(np.flatnonzero(free)).tolist():
                taken = min(tau, int(free[client]))
                held[client].append(pools[place : place + taken])
                free[client] -= taken
                place += taken
        return [np.concatenate(parts) for parts in held]
