"""Each class is spread over the clients that are not yet full."""

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, class_pools, cut, require_a_sample_each, require_least

_ATTEMPTS = 1000


class DirichletBalanced(Partition):
    """Dirichlet over clients per class, without clients that have reached the mean size (NIID-Bench, DynamicFL).

    Li et al. 2022: classes are dealt in order, a client with n/N samples or more gets nothing of the next classes, and
    the whole deal is repeated until every client has ``min_per_client`` samples.
    """

    class Settings(PluginSettings):
        name: str = "dirichlet_balanced"
        alpha: float = Field(0.3, gt=0, description="concentration per client; small values put a class on few clients")
        min_per_client: int = Field(10, ge=0, description="smallest number of samples of a client")

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        """See :meth:`Partition.deal`; also raises if none of 1000 deals gives every client enough samples."""
        least, alpha = self.settings.min_per_client, self.settings.alpha
        require_a_sample_each(num_clients, len(labels))
        require_least(least, len(labels), num_clients)
        pools = class_pools(labels, np.unique(labels), generator(seed, "partition.pools", group))
        best = 0
        for attempt in range(_ATTEMPTS):
            counts = _counts(pools, num_clients, alpha, generator(seed, "partition.prior", group, attempt))
            smallest = int(counts.sum(axis=0).min())
            if smallest >= least:
                return cut(pools, counts)
            best = max(best, smallest)
        raise SettingsError(
            f"min_per_client = {least} is too large: none of {_ATTEMPTS} partitions of {len(labels)} samples among "
            f"{num_clients} clients at alpha = {alpha:g} reached it; the largest value reached is {best}"
        )


def _counts(pools: list[Ints], num_clients: int, alpha: float, rng: np.random.Generator) -> Ints:
    """Samples of each class per client, int64 [classes, clients]."""
    counts = np.zeros((len(pools), num_clients), dtype=np.int64)
    mean = sum(map(len, pools)) / num_clients
    for row, pool in zip(counts, pools, strict=True):
        # Drawing over the open clients has the same distribution as masking and renormalizing, and no sum is zero.
        open_ = np.flatnonzero(counts.sum(axis=0) < mean)
        share = rng.dirichlet(np.full(len(open_), alpha))
        ends = np.floor(np.cumsum(share) * len(pool)).astype(np.int64)
        ends[-1] = len(pool)
        row[open_] = np.diff(ends, prepend=0)
    return counts
