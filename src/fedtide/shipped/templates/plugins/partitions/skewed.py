import numpy as np
from pydantic import Field

from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Ints, Partition


class Skewed(Partition):
    """Samples at random, with sizes that follow a power law."""

    class Settings(Partition.Settings):
        name: str = "skewed"
        power: float = Field(1.0, ge=0, description="client k gets a share proportional to k ** -power; 0: equal sizes")

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        order = generator(seed, "partition.skewed", group).permutation(len(labels))
        shares = np.arange(1, num_clients + 1) ** -self.settings.power
        ends = np.cumsum(shares / shares.sum() * len(labels)).astype(np.int64)
        return np.split(order, ends[:-1])
