"""Clients that arrive and stay."""

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from fedtide.core.array_types import Bools
from fedtide.core.errors import SettingsError
from fedtide.world.scenarios._presence import PatternSettings, changes, write_presence
from fedtide.world.scenarios.base import Scenario, WorldInput
from fedtide.world.timeline import Timeline


class IncrementalArrival(Scenario):
    """New clients join at regular intervals and stay for good (DPFL, arXiv:2511.16523).

    The first ``initial`` clients are always present; in round ``start`` and every ``interval`` rounds after it the next
    ``step`` ids join. The data is dealt to all clients, also to those who never come. A session is evaluated on the labels
    that its clients hold.
    """

    class Settings(PatternSettings):
        name: str = "incremental_arrival"
        initial: int = Field(5, ge=1, description="clients present from the beginning")

        @model_validator(mode="after")
        def _consistent(self) -> Self:
            if self.initial > self.num_clients:
                raise SettingsError(f"initial = {self.initial} should be at most num_clients = {self.num_clients}")
            return self

    settings: Settings

    def present(self) -> Bools:
        """Who is present when, bool [N, rounds]."""
        s = self.settings
        return np.arange(s.num_clients)[:, None] < s.initial + s.step * np.array(changes(s))

    def timeline(self, world: WorldInput) -> Timeline:
        return write_presence(
            world, self.present(), self.settings.session_at_change, {"scenario": "incremental_arrival"}
        )
