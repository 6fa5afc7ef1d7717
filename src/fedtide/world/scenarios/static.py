"""A fixed population."""

import numpy as np
from pydantic import Field

from fedtide.core.bounds import Clients, Rounds
from fedtide.core.plugins import PluginSettings
from fedtide.world.scenarios.base import Scenario, Span, WorldInput, assign, write
from fedtide.world.timeline import Timeline


class Static(Scenario):
    """The same clients with the same data in every round: one session, all labels are evaluated."""

    class Settings(PluginSettings):
        name: str = "static"
        rounds: Rounds = Field(100, ge=1, description="communication rounds")
        num_clients: Clients | None = Field(20, description="clients; null: those of the data (partition natural)")

    settings: Settings

    def timeline(self, world: WorldInput) -> Timeline:
        dealt = assign(world, world.train, self.settings.num_clients)
        return write(
            world,
            dealt.shards,
            [Span(np.arange(len(dealt.shards)), self.settings.rounds, session=0)],
            np.ones((1, world.num_classes), dtype=np.bool_),
            {"scenario": "static", **dealt.notes},
            dealt.origins,
        )
