"""What a partition plug-in provides: labels in, one array of positions per client out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import Plugin
from fedtide.world.dataset import Samples
from fedtide.world.timeline import Timeline


@dataclass(frozen=True)
class Dealt:
    """What each client holds, and JSON-able ``notes``.

    Attributes:
        shards: one int64 array of positions per client, ascending.
        origins: int64 [clients], number of each client in the data; empty if clients are not those of the data.
    """

    shards: list[Ints]
    origins: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    notes: Mapping[str, Any] = field(default_factory=dict)


class Partition(Plugin):
    """Deals samples to clients.

    ``scope`` is what one call covers if the population consists of groups (scenario ``sessions``): rules of scope ``group``
    deal each group's own labels; rules of scope ``population`` deal to all clients at once, and the groups are consecutive
    clients.
    """

    kind: ClassVar[str] = "partitions"

    scope: ClassVar[Literal["group", "population"]] = "group"

    @property
    def needs_classes(self) -> bool:
        return True  # most rules deal by label

    @abstractmethod
    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        """Deal all samples (or those that the rule uses) to ``num_clients`` clients.

        Args:
            labels: int64 [n] labels of the samples that may be dealt; not all of 0..num_classes-1 need occur.
            num_clients, num_classes: their numbers.
            seed, group: every draw uses ``generator(seed, "partition.<purpose>", group, ...)``.

        Returns:
            One int64 array of positions into ``labels`` per client.

        Raises:
            SettingsError: the request is impossible; raised before drawing, with the largest feasible value.
        """

    def assign(self, samples: Samples, num_clients: int | None, num_classes: int, seed: int, group: int = 0) -> Dealt:
        """:meth:`deal` for samples; a partition by the data's clients overrides it, and may have no number of clients."""
        if num_clients is None:
            raise SettingsError(
                f"scenario.num_clients = null requires partition natural; partition {self.settings.name} requires a "
                "number"
            )
        dealt = self.deal(samples.label, num_clients, num_classes, seed, group)
        return Dealt([np.sort(places) for places in dealt])

    def evaluated(self, timeline: Timeline, train: Samples, test: Samples) -> Timeline:
        """The finished timeline, possibly with other held-out samples; ``train`` and ``test`` are all samples of both sets."""
        return timeline
