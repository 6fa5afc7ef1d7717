"""Each class is spread over the clients by its own Dirichlet draw."""

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, class_pools, cut, require_least


class DirichletClass(Partition):
    """Dirichlet over clients per class, every sample drawn independently (FedGraB); quantities differ widely.

    Clients may end up empty unless ``min_per_client`` is positive: clients with fewer samples then get random samples of
    the largest client.
    """

    class Settings(PluginSettings):
        name: str = "dirichlet_class"
        alpha: float = Field(0.1, gt=0, description="concentration per client; small values put a class on few clients")
        min_per_client: int = Field(0, ge=0, description="smallest number of samples of a client")

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        least = self.settings.min_per_client
        require_least(least, len(labels), num_clients)
        pools = class_pools(labels, np.unique(labels), generator(seed, "partition.pools", group))
        rng = generator(seed, "partition.prior", group)
        share = rng.dirichlet(np.full(num_clients, self.settings.alpha), len(pools))
        # The pools are shuffled, so cutting them by multinomial counts draws a client per sample independently.
        shares = cut(pools, rng.multinomial([len(pool) for pool in pools], share))
        _fill_up(shares, least, generator(seed, "partition.repair", group))
        return shares


def _fill_up(shares: list[Ints], least: int, rng: np.random.Generator) -> None:
    """Move random samples of the largest client until every client has ``least``."""
    sizes = np.array([len(share) for share in shares])
    for client in np.flatnonzero(sizes < least):
        while sizes[client] < least:
            donor = int(np.argmax(sizes))
            place = int(rng.integers(sizes[donor]))
            shares[client] = np.append(shares[client], shares[donor][place])
            shares[donor] = np.delete(shares[donor], place)
            sizes[client] += 1
            sizes[donor] -= 1
