"""As listed."""

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from fedtide.core.array_types import Ints
from fedtide.core.bounds import LARGEST
from fedtide.core.errors import SettingsError
from fedtide.world.drift.base import Drift, DriftSettings, Population


class Table(Drift):
    """The concept of every client, step by step; the last step lasts until the end."""

    class Settings(DriftSettings):
        name: str = "table"
        steps: tuple[tuple[int, ...], ...] = Field((), description="concept index of each client, by step")
        rounds_per_step: int = Field(1, ge=1, le=LARGEST, description="rounds of a step")

        @model_validator(mode="after")
        def _known(self) -> Self:
            last = len(self.concepts)
            for number, step in enumerate(self.steps):
                if wrong := [concept for concept in step if not 0 <= concept <= last]:
                    raise SettingsError(f"steps.{number} has concept {wrong[0]}; concepts are 0 to {last}")
            if self.share < 1 or self.clients or self.modulus is not None:
                raise SettingsError("share, clients and modulus have no effect with steps, which list all clients")
            return self

    settings: Settings

    def concepts(self, p: Population) -> Ints:
        chosen, clients = self.settings, len(p.group)
        if not chosen.steps:
            return np.zeros((p.timeline.rounds, clients), dtype=np.int64)
        if wrong := [number for number, step in enumerate(chosen.steps) if len(step) != clients]:
            found = len(chosen.steps[wrong[0]])
            raise SettingsError(f"drift.steps.{wrong[0]} lists {found} clients; the world has {clients}")
        step = np.minimum(np.arange(p.timeline.rounds) // chosen.rounds_per_step, len(chosen.steps) - 1)
        return np.array(chosen.steps, dtype=np.int64)[step]
