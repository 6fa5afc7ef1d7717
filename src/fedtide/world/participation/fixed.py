"""A cohort of fixed size."""

from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.plugins import PluginSettings
from fedtide.world.participation.base import Participation, coins, smallest


class Fixed(Participation):
    """A fixed fraction or number of the present clients, sampled uniformly without replacement."""

    class Settings(PluginSettings):
        name: str = "fixed"
        fraction: float = Field(0.1, gt=0, le=1, description="fraction of the present clients, at least one client")
        count: int | None = Field(None, ge=1, description="clients per round, instead of a fraction; all if fewer")

    settings: Settings
    private = True

    def draw(self, present: Ints, round_: int, seed: int) -> Ints:
        """See :meth:`Participation.draw`; the clients with the smallest uniform numbers."""
        return smallest(coins(present, round_, seed), self._size(len(present)))

    def participation_fraction(self, present: int) -> float:
        return self._size(present) / present

    def _size(self, present: int) -> int:
        wanted: int | None = self.settings.count
        return max(1, round(self.settings.fraction * present)) if wanted is None else min(wanted, present)
