"""One after the other."""

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from fedtide.core.array_types import Ints
from fedtide.core.bounds import LARGEST
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator
from fedtide.world.drift.base import Drift, Population, StartSettings, from_start


class Staggered(Drift):
    """Group after group changes, or client after client, for good."""

    class Settings(StartSettings):
        name: str = "staggered"
        stagger: int = Field(10, ge=0, le=LARGEST, description="rounds between one group's change and the next one's")
        within: int | None = Field(
            None,
            ge=1,
            le=LARGEST,
            description="each client changes in a round sampled from so many, instead of `stagger`",
        )

        @model_validator(mode="after")
        def _either(self) -> Self:
            if "stagger" in self.model_fields_set and self.within is not None:
                raise SettingsError("stagger and within exclude each other; give one of them")
            return self

    settings: Settings

    def concepts(self, p: Population) -> Ints:
        chosen, clients = self.settings, len(p.group)
        start = chosen.start_round(p)
        own = start + chosen.stagger * p.group
        if chosen.within is not None:
            drawn = (generator(p.seed, "drift.start", client) for client in range(clients))
            own = np.array([int(rng.integers(start, start + chosen.within)) for rng in drawn])
        return from_start(p, np.arange(p.timeline.rounds)[:, None] >= own)
