"""Equal quotas filled client by client, Dirichlet label proportions per client."""

from typing import Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Floats, Ints
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


class DirichletSession(Partition):
    """Equal quotas filled client by client, Dirichlet label proportions per client (dynamic initialization).

    Chang et al. 2025. Clients are filled in id order, so the last ones get what is left. A client tries 3 n + 5 times (n
    labels) to draw a class that remains, then takes any; here one draw with the probability that all tries fail decides.
    """

    class Settings(PluginSettings):
        name: str = "dirichlet_session"
        alpha: float = Field(0.3, gt=0, description="concentration per class; small values give few classes per client")
        rule: Literal["literal", "efficient"] = Field(
            "literal", description="literal: give up after 3 n + 5 tries; efficient: only if no wanted class remains"
        )

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        require_a_sample_each(num_clients, len(labels))
        pools = class_pools(labels, np.unique(labels), generator(seed, "partition.pools", group))
        tries = 3 * len(pools) + 5

        def gives_up(mass: Floats) -> Floats:
            if self.settings.rule == "literal":
                return (1.0 - mass) ** tries
            return (mass < NEGLIGIBLE).astype(np.float64)

        return fill_slots(
            np.repeat(np.arange(num_clients), equal_sizes(len(labels), num_clients)),
            generator(seed, "partition.prior", group).dirichlet(np.full(len(pools), self.settings.alpha), num_clients),
            pools,
            generator(seed, "partition.slots", group),
            gives_up,
            fallback=lambda left: (left > 0).astype(np.float64),
        )
