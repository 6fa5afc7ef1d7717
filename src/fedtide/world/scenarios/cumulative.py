"""A scenario in which no data is lost."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import GetJsonSchemaHandler, SerializeAsAny
from pydantic_core import CoreSchema

from fedtide.core import plugins
from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.settings.choices import Choice, choice_field
from fedtide.world.scenarios.base import Scenario, WorldInput
from fedtide.world.timeline import Assignment, Timeline


class _OtherScenario(Choice):
    """A scenario, in a schema of its own: that of all scenarios has this one in it."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        name = {"enum": plugins.names(self.kind)}
        return {"anyOf": [name, {"type": "object", "properties": {"name": name}}]}


class Cumulative(Scenario):
    """The clients present share all data so far: what any client has held up to now, dealt in equal parts.

    Who is present when, and what is evaluated, is up to another scenario, ``of``. Samples are dealt at random, anew whenever
    there are more of them or other clients are present. The label ``pooled`` uses it.
    """

    class Settings(PluginSettings):
        name: str = "cumulative"
        of: Annotated[SerializeAsAny[PluginSettings], _OtherScenario("scenarios", "static")] = choice_field(
            "static", "the scenario"
        )

    settings: Settings

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._of = plugins.create(Scenario, settings.of)

    def files(self) -> tuple[Path, ...]:
        return self._of.files()

    def period_of(self, times: Ints, unit: str) -> Ints | None:
        return self._of.period_of(times, unit)

    def partition_settings(self) -> Collection[str] | None:
        return self._of.partition_settings()

    def timeline(self, world: WorldInput) -> Timeline:
        if world.events:
            raise SettingsError("scenario cumulative requires mode: sync")
        timeline = self._of.timeline(world)
        held = np.zeros(len(world.samples), dtype=np.bool_)
        numbers: dict[tuple[int, int], int] = {}
        known: set[int] = set()
        shards: list[Ints] = []
        assignments: list[Assignment] = []
        of_round: list[int] = []
        for number in timeline.assignment_of_round.tolist():
            present = timeline.assignments[number]
            if new := set(present.shards.tolist()) - known:
                known |= new
                held[np.concatenate([timeline.shards[shard] for shard in new])] = True
            key = number, len(known)
            if key not in numbers:
                numbers[key] = len(assignments)
                clients = present.clients
                assignments.append(Assignment(clients, len(shards) + np.arange(len(clients))))
                shards += _dealt(np.flatnonzero(held), len(clients), world.seed, numbers[key])
            of_round.append(numbers[key])
        return replace(
            timeline,
            shards=shards,
            assignments=assignments,
            assignment_of_round=np.array(of_round, dtype=np.int64),
            notes={**timeline.notes, "all_so_far": True},
        )


def _dealt(positions: Ints, clients: int, seed: int, number: int) -> list[Ints]:
    """Equal parts in random order, each ascending."""
    order = generator(seed, "scenario.so_far", number).permutation(positions)
    return [np.sort(part) for part in np.array_split(order, clients)] if clients else []
