"""Those whose last participation is oldest."""

from typing import Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Bools, Floats
from fedtide.world.participation._available import Available, AvailableSettings


class LeastRecentlySelected(Available):
    """The clients present whose last participation is oldest, those never drawn first, equal ones by id.

    FedLaAvg's choice of participants (Yan et al. 2020). Among clients that are not always available it is ``choose: oldest``
    of participation ``heterogeneous``, ``time_dependent``, ``markov`` or ``alternating``. A client that was absent counts by
    its last participation before.
    """

    class Settings(AvailableSettings):
        name: str = "least_recently_selected"
        count: int = Field(10, ge=1, description="clients per round; all if fewer are present")
        choose: Literal["oldest"] = Field("oldest", description="the least recently selected clients")

    settings: Settings

    def states(self, round_: int) -> Bools:
        return np.ones(self.timeline.num_clients, dtype=np.bool_)

    def stationary(self) -> Floats:
        return np.ones(self.timeline.num_clients)
