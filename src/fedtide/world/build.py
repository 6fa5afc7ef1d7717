"""From settings to a timeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtide.core import plugins
from fedtide.core.faults import broken_contract
from fedtide.partitions.base import Partition
from fedtide.scenarios.base import Scenario, WorldInput
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset
from fedtide.world.longtail import thin
from fedtide.world.timeline import Timeline
from fedtide.world.validation import stratified_split


def build_timeline(settings: RunSettings, data: Dataset) -> Timeline:
    """The timeline: long-tail thinning, validation split, partition, scenario, all keyed by the world's seed.

    Raises:
        SettingsError: the request is impossible.
    """
    labels = data.train_labels.cpu().numpy().astype(np.int64)
    seed = settings.seed if settings.world_seed is None else settings.world_seed
    tail = settings.long_tail
    kept = np.arange(len(labels), dtype=np.int64)
    if tail.imbalance is not None:
        kept = thin(labels, tail.imbalance, tail.mode, tail.order, seed)
    train, validation = stratified_split(labels, kept, settings.validation, seed)
    partition = plugins.create(Partition, settings.partition)
    world = WorldInput(labels, train, validation, data.num_classes, partition, seed)
    scenario = plugins.create(Scenario, settings.scenario)
    timeline = scenario.timeline(world)
    _refuse_impossible(scenario, timeline, len(labels))
    return timeline


def _refuse_impossible(scenario: Scenario, timeline: Any, samples: int) -> None:
    if not isinstance(timeline, Timeline):
        raise broken_contract(scenario, "timeline", f"a Timeline, got {type(timeline).__name__}")
    indices = {
        "shards": (timeline.shards, samples),
        "clients of an assignment": ([item.clients for item in timeline.assignments], timeline.num_clients),
        "shards of an assignment": ([item.shards for item in timeline.assignments], len(timeline.shards)),
        "assignment_of_round": ([timeline.assignment_of_round], len(timeline.assignments)),
        "session_of_round": ([timeline.session_of_round], timeline.rounds),
        "view_of_round": ([timeline.view_of_round], len(timeline.label_views)),
        "validation": ([timeline.validation], samples),
    }
    for name, (arrays, end) in indices.items():
        for array in arrays:
            if array.dtype != np.int64 or array.ndim != 1 or (len(array) and not 0 <= array.min() <= array.max() < end):
                raise broken_contract(scenario, "timeline", f"{name} as int64 numbers [n] from 0 to {end - 1}")
    if timeline.rounds == 0:
        raise broken_contract(scenario, "timeline", "one round or more")
