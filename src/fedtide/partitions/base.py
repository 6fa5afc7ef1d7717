"""What a partition plug-in provides: labels in, one array of positions per client out."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedtide.core.plugins import Plugin

Ints = NDArray[np.int64]


class Partition(Plugin):
    """Deals samples to clients.

    ``scope`` is what one call covers if the population consists of groups (scenario ``sessions``): rules of scope ``group``
    deal each group's own labels; rules of scope ``population`` deal to all clients at once, and the groups are consecutive
    clients.
    """

    kind: ClassVar[str] = "partitions"

    scope: ClassVar[Literal["group", "population"]] = "group"

    @abstractmethod
    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        """Deal all samples (or those that the rule uses) to ``num_clients`` clients.

        Args:
            labels: int64 [n] labels of the samples that may be dealt; not all of 0..num_classes-1 need occur.
            num_clients: number of clients.
            num_classes: L.
            seed: world seed; every draw uses ``generator(seed, "partition.<purpose>", group, ...)``.
            group: number of the group, part of the keys of the draws.

        Returns:
            One int64 array of positions into ``labels`` per client.

        Raises:
            SettingsError: the request is impossible; raised before drawing, with the largest feasible value.
        """
