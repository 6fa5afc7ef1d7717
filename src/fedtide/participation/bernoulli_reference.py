"""The cohorts of the code released with FedDyn and its successors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.participation.base import Participation

_ATTEMPTS = 100_000


class BernoulliReference(Participation):
    """Bernoulli cohorts from the random stream of the code released with FedDyn, FedDC and FedSSG.

    In round t the legacy generator MT19937 is seeded with ``t + seed + k`` and draws one uniform number per client; clients
    with at most ``probability`` join, and k increases from 0 until one does. For comparison with published cohorts only: two
    seeds that differ by s draw the same cohorts s rounds apart, so use `bernoulli` for repeated runs.
    """

    class Settings(PluginSettings):
        name: str = "bernoulli_reference"
        probability: float = Field(
            0.1, gt=0, le=1, description="probability that a present client takes part in a round"
        )

    settings: Settings

    def draw(self, present: NDArray[np.int64], round_: int, seed: int) -> NDArray[np.int64]:
        """See :meth:`Participation.draw`; the stream is that of the released code, not :mod:`fedtide.core.randomness`."""
        for k in range(_ATTEMPTS):
            stream = np.random.RandomState((round_ + seed + k) % 2**32)
            joined = np.flatnonzero(stream.uniform(size=int(present[-1]) + 1)[present] <= self.settings.probability)
            if len(joined):
                return joined
        raise SettingsError(
            f"participation.probability = {self.settings.probability:g} is too small for {len(present)} present "
            f"clients: none joined round {round_} in {_ATTEMPTS} draws"
        )

    def participation_fraction(self, present: int) -> float:
        """See :meth:`Participation.participation_fraction`: the p of FedSSG's gate."""
        return float(self.settings.probability)
