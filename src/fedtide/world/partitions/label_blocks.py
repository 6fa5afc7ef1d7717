"""A block of labels per client, disjoint from the others."""

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, class_pools, hand_out, rarest, require_multiple


class LabelBlocks(Partition):
    """A block of consecutive labels per client; clients with the same block share its samples.

    There are 10 blocks if 10 divides the number of labels, else one block per label. With m clients per block, client i
    holds block floor(i / m).
    """

    scope = "population"

    class Settings(PluginSettings):
        name: str = "label_blocks"

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        blocks = num_classes if num_classes % 10 else 10
        fewest = rarest(labels, range(num_classes))
        reason = f"{blocks} blocks of labels, the rarest label has {fewest} samples"
        require_multiple(num_clients, blocks, blocks * fewest, reason)
        sharing, width = num_clients // blocks, num_classes // blocks
        firsts = [label // width * sharing for label in range(num_classes)]
        pools = class_pools(labels, range(num_classes), generator(seed, "partition.pools", group))
        shares = ((pool, range(first, first + sharing)) for pool, first in zip(pools, firsts, strict=True))
        return hand_out(shares, num_clients)
