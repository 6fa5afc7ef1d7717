"""Independent participation of each client."""

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.world.participation.base import Participation, coins

_ATTEMPTS = 100_000


class Bernoulli(Participation):
    """Each present client joins independently with one probability; an empty round is drawn again."""

    class Settings(PluginSettings):
        name: str = "bernoulli"
        probability: float = Field(0.1, gt=0, le=1, description="probability that a present client takes part")

    settings: Settings
    private = True

    @property
    def rate(self) -> float | None:
        return float(self.settings.probability)

    def draw(self, present: Ints, round_: int, seed: int) -> Ints:
        """See :meth:`Participation.draw`; raises :class:`SettingsError` after 100,000 draws without a client."""
        for attempt in range(_ATTEMPTS):
            if len(joined := self.joined(present, round_, seed, attempt)):
                return joined
        raise SettingsError(
            f"participation.probability = {self.settings.probability:g} is too small for {len(present)} present "
            f"clients: no client joined round {round_} in {_ATTEMPTS} draws"
        )

    def joined(self, present: Ints, round_: int, seed: int, attempt: int) -> Ints:
        """Positions of those who join in one draw."""
        return np.flatnonzero(coins(present, round_, seed, attempt) < self.settings.probability)

    def participation_fraction(self, present: int) -> float:
        """The probability itself, as in FedSSG; that empty rounds are drawn again is ignored."""
        return float(self.settings.probability)
