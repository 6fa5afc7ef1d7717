"""Each client draws its own label proportions; sizes may be skewed too."""

from typing import Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, class_pools, fill_slots, require_a_sample_each


class DirichletClient(Partition):
    """Dirichlet label proportions per client, equal or lognormal sizes (FedDyn, FedDC, FedSSG).

    Acar et al. 2021: a client with free slots is drawn uniformly, then a class from its proportions among the remaining
    classes, or uniformly where these have no mass. That has the distribution of their redraws.
    """

    class Settings(PluginSettings):
        name: str = "dirichlet_client"
        alpha: float = Field(0.3, gt=0, description="concentration per class; small values give few classes per client")
        sigma: float = Field(0.0, ge=0, description="standard deviation of the logarithm of the sizes; 0: equal sizes")
        sizes: Literal["exact", "reference"] = Field(
            "exact",
            description="exact: largest remainders; reference: truncate and give the whole remainder to the first client, "
            "as released code does",
        )

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        require_a_sample_each(num_clients, len(labels))
        pools = class_pools(labels, np.unique(labels), generator(seed, "partition.pools", group))
        concentration = np.full(len(pools), self.settings.alpha)
        rng = generator(seed, "partition.slots", group)
        sizes = self._sizes(len(labels), num_clients, generator(seed, "partition.sizes", group))
        return fill_slots(
            _uniform_among_free(sizes, rng),
            generator(seed, "partition.prior", group).dirichlet(concentration, num_clients),
            pools,
            rng,
            gives_up=lambda mass: (mass == 0).astype(np.float64),
            fallback=lambda left: (left > 0).astype(np.float64),
        )

    def _sizes(self, samples: int, num_clients: int, rng: np.random.Generator) -> Ints:
        """Client sizes that sum to ``samples``; lognormal around the mean size for ``sigma`` > 0."""
        weights = rng.lognormal(np.log(samples // num_clients), self.settings.sigma, num_clients)
        share = weights / weights.sum() * samples
        sizes: Ints = share.astype(np.int64)
        rest = samples - int(sizes.sum())
        if self.settings.sizes == "reference":
            sizes[0] += rest
        else:
            sizes[np.argsort(sizes - share, kind="stable")[:rest]] += 1
        return sizes


def _uniform_among_free(sizes: Ints, rng: np.random.Generator) -> Ints:
    """Order of dealing, int64 [sum of sizes]: each slot goes to a client drawn uniformly among those not yet full."""
    open_, free = np.flatnonzero(sizes).tolist(), sizes.tolist()
    slots = np.empty(int(sizes.sum()), dtype=np.int64)
    for slot, height in enumerate(rng.random(len(slots)).tolist()):
        place = int(height * len(open_))
        client = open_[place]
        slots[slot] = client
        free[client] -= 1
        if free[client] == 0:
            open_[place] = open_[-1]
            open_.pop()
    return slots
