"""Two halves of the clients, two halves of the labels."""

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, class_pools, hand_out, rarest, require_multiple


class LabelHalves(Partition):
    """The first half of the clients shares the lower half of the labels, the others share the rest."""

    scope = "population"

    class Settings(PluginSettings):
        name: str = "label_halves"

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        fewest = rarest(labels, range(num_classes))
        require_multiple(num_clients, 2, 2 * fewest, f"each half shares the rarest class, {fewest} samples")
        lower, upper = range(num_clients // 2), range(num_clients // 2, num_clients)
        holders = [lower if label < num_classes // 2 else upper for label in range(num_classes)]
        pools = class_pools(labels, range(num_classes), generator(seed, "partition.pools", group))
        return hand_out(zip(pools, holders, strict=True), num_clients)
