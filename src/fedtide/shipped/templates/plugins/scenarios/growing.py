import numpy as np
from pydantic import Field

from fedtide.world.scenarios.base import Scenario, WorldInput
from fedtide.world.timeline import Assignment, Timeline


class Growing(Scenario):
    """One client at the start; another one arrives after every session and nobody leaves."""

    class Settings(Scenario.Settings):
        name: str = "growing"
        num_clients: int = Field(3, ge=1, description="clients in the end, which is also the number of sessions")
        rounds_per_session: int = Field(2, ge=1, description="communication rounds between two arrivals")

    def timeline(self, world: WorldInput) -> Timeline:
        clients, classes = self.settings.num_clients, world.num_classes
        dealt = world.partition.deal(world.labels[world.train], clients, classes, world.seed)
        present = [np.arange(session + 1) for session in range(clients)]
        session_of_round = np.repeat(np.arange(clients), self.settings.rounds_per_session)
        return Timeline(
            num_clients=clients,
            num_classes=classes,
            shards=[np.sort(world.train[places]) for places in dealt],
            assignments=[Assignment(ids, ids) for ids in present],  # client k holds shard k
            assignment_of_round=session_of_round,
            session_of_round=session_of_round,
            label_views=np.ones((1, classes), dtype=np.bool_),  # all labels, in every round
            view_of_round=np.zeros_like(session_of_round),
            validation=world.validation,
        )
