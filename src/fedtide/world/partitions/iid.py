"""Equal shares at random."""

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, require_a_sample_each


class Iid(Partition):
    """Equal shares at random: sizes differ by at most one.

    With ``stratified`` the counts of every class differ by at most one between clients as well.
    """

    class Settings(PluginSettings):
        name: str = "iid"
        stratified: bool = Field(False, description="split by class: clients' label counts differ by at most one")

    settings: Settings

    @property
    def needs_classes(self) -> bool:
        return self.settings.stratified

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        require_a_sample_each(num_clients, len(labels))
        order = generator(seed, "partition.pools", group).permutation(len(labels))
        if self.settings.stratified:
            order = order[np.argsort(labels[order], kind="stable")]
        return [order[client::num_clients] for client in range(num_clients)]
