"""Equal sizes, Dirichlet label proportions per client."""

from typing import Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import (
    NEGLIGIBLE,
    Partition,
    class_pools,
    equal_sizes,
    fill_slots,
    require_a_sample_each,
)


class DirichletEqual(Partition):
    """Equal sizes, Dirichlet label proportions per client (FedWCM).

    The slots of all clients are shuffled and filled one by one from the client's proportions among the remaining classes;
    once all classes that a client prefers are exhausted, from the remaining samples. On long-tailed data clients become more
    alike: the mean total variation to the population at alpha 0.1, 10 classes, 100 clients is 0.66 for balanced data and 0.47
    at imbalance 0.01.
    """

    class Settings(PluginSettings):
        name: str = "dirichlet_equal"
        alpha: float = Field(0.6, gt=0, description="concentration per class; small values give few classes per client")
        base: Literal["uniform", "global"] = Field(
            "uniform", description="mean of the proportions: uniform over classes, or the population's frequencies"
        )
        remainder: Literal["spread", "first"] = Field(
            "spread", description="remainder of equal division: a sample each to the first clients, or all to client 0"
        )

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        require_a_sample_each(num_clients, len(labels))
        pools = class_pools(labels, np.unique(labels), generator(seed, "partition.pools", group))
        concentration = np.full(len(pools), self.settings.alpha)
        if self.settings.base == "global":
            concentration *= [len(pool) * len(pools) / len(labels) for pool in pools]
        sizes = equal_sizes(len(labels), num_clients)
        if self.settings.remainder == "first":
            sizes = np.full(num_clients, sizes[-1])
            sizes[0] += len(labels) - sizes.sum()
        rng = generator(seed, "partition.slots", group)
        return fill_slots(
            rng.permutation(np.repeat(np.arange(num_clients), sizes)),
            generator(seed, "partition.prior", group).dirichlet(concentration, num_clients),
            pools,
            rng,
            gives_up=lambda mass: (mass < NEGLIGIBLE).astype(np.float64),
            fallback=lambda left: left.astype(np.float64),
        )
