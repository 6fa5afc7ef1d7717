"""Clients that leave for good."""

import numpy as np

from fedtide.core.array_types import Bools
from fedtide.core.errors import SettingsError
from fedtide.world.scenarios._presence import PatternSettings, changes, write_presence
from fedtide.world.scenarios.base import Scenario, WorldInput
from fedtide.world.timeline import Timeline


class IncrementalDeparture(Scenario):
    """Clients leave at regular intervals and never return (DPFL, arXiv:2511.16523).

    All clients are present at first; in round ``start`` and every ``interval`` rounds after it the ``step`` highest ids still
    there leave. A session is evaluated on the labels that its clients hold.
    """

    class Settings(PatternSettings):
        name: str = "incremental_departure"

    settings: Settings

    def present(self) -> Bools:
        """Who is present when, bool [N, rounds]."""
        s = self.settings
        return np.arange(s.num_clients)[:, None] < s.num_clients - s.step * np.array(changes(s))

    def timeline(self, world: WorldInput) -> Timeline:
        s, present = self.settings, self.present()
        if not present[0].all():
            gone = int((~present[0]).argmax())
            raise SettingsError(
                f"scenario.rounds = {s.rounds} is too large: all clients have left in round {gone} (counted from 0); "
                f"the largest feasible value is {gone}"
            )
        return write_presence(world, present, s.session_at_change, {"scenario": "incremental_departure"})
