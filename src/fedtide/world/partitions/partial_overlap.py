"""Two halves of the clients whose label sets share a middle part."""

from collections.abc import Iterator, Sequence

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, class_pools, hand_out, rarest, require_at_most


class PartialOverlap(Partition):
    """Two halves of the clients with floor(3 L / 5) labels each, floor(L / 5) of them in common.

    Labels are taken in order; a sample of a common label goes to one half only. Four labels: one for each half, one for
    all clients, and the last is not used.
    """

    scope = "population"

    class Settings(PluginSettings):
        name: str = "partial_overlap"

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        if num_classes < 4 or num_clients < 2:
            raise SettingsError(
                f"partition partial_overlap requires at least 2 clients and 4 classes, got {num_clients} and "
                f"{num_classes}"
            )
        size, common = 3 * num_classes // 5, num_classes // 5
        used = range(3) if num_classes == 4 else range(2 * size - common)
        fewest = rarest(labels, used)
        require_at_most("num_clients", num_clients, fewest, f"the rarest class has {fewest} samples")
        halves = range(num_clients // 2), range(num_clients // 2, num_clients)
        pools = class_pools(labels, used, generator(seed, "partition.pools", group))
        if num_classes == 4:
            return hand_out(zip(pools, (*halves, range(num_clients)), strict=True), num_clients)
        return hand_out(_shares(pools, halves, size - common, size), num_clients)


def _shares(
    pools: Sequence[Ints], halves: tuple[range, range], first_common: int, end_common: int
) -> Iterator[tuple[Ints, range]]:
    """Pools below ``first_common`` for the first half, above ``end_common`` for the second, between them cut in two."""
    for label, pool in enumerate(pools):
        if label < first_common:
            yield pool, halves[0]
        elif label >= end_common:
            yield pool, halves[1]
        else:
            yield from zip(np.array_split(pool, 2), halves, strict=True)
