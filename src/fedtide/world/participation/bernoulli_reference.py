"""The cohorts of the code released with FedDyn and its successors."""

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.world.participation.bernoulli import Bernoulli


class BernoulliReference(Bernoulli):
    """Bernoulli cohorts from the random stream of the code released with FedDyn, FedDC and FedSSG.

    In round t the legacy generator MT19937 is seeded with ``t + seed + k`` and draws one uniform number per client; clients
    with at most ``probability`` join, and k increases from 0 until one does. For comparison with published cohorts only: two
    seeds that differ by s draw the same cohorts s rounds apart, so use `bernoulli` for repeated runs.
    """

    class Settings(Bernoulli.Settings):
        name: str = "bernoulli_reference"

    settings: Settings
    rate = None  # who knows the stream knows the cohorts

    def joined(self, present: Ints, round_: int, seed: int, attempt: int) -> Ints:
        stream = np.random.RandomState((round_ + seed + attempt) % 2**32)  # not that of fedtide.core.randomness
        return np.flatnonzero(stream.uniform(size=int(present[-1]) + 1)[present] <= self.settings.probability)
