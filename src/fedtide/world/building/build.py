"""From settings to a timeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtide.core import plugins
from fedtide.core.discovery.faults import broken_contract
from fedtide.settings.run import Async, RunSettings
from fedtide.world.building.drifting import with_drift
from fedtide.world.dataset import Dataset, test_samples, training_samples
from fedtide.world.drift.base import Drift
from fedtide.world.partitions.base import Partition
from fedtide.world.scenarios.base import Scenario, WorldInput
from fedtide.world.splits.holdout import hold_out
from fedtide.world.splits.longtail import thin
from fedtide.world.splits.validation import stratified_split
from fedtide.world.timeline import Timeline


def build_timeline(settings: RunSettings, data: Dataset) -> Timeline:
    """The timeline: long-tail thinning, held-out samples, partition, scenario, drift, all keyed by the world's seed."""
    seed = settings.seed if settings.world_seed is None else settings.world_seed
    samples, tail = training_samples(data), settings.long_tail
    partition, scenario = plugins.create(Partition, settings.partition), plugins.create(Scenario, settings.scenario)
    kept = np.arange(len(samples), dtype=np.int64)
    if tail.imbalance is not None:
        kept = thin(samples.label, tail.imbalance, tail.mode, tail.order, seed)
    period = None if samples.time is None else scenario.period_of(samples.time, data.origins.unit)
    if period is None or samples.client is None:
        train, validation = stratified_split(samples.label, kept, settings.validation, seed)
    else:
        train, validation = hold_out(
            kept, samples.client[kept], period[kept], None, settings.validation, seed, "validation"
        )
    world = WorldInput(
        *(samples, train, validation, data.num_classes, partition, seed, test_samples(data), data.origins.unit),
        events=isinstance(settings.mode, Async),
    )
    timeline = scenario.timeline(world)
    _refuse_impossible(scenario, timeline, len(samples), len(data.test_labels))
    timeline = partition.evaluated(timeline, samples, test_samples(data))
    if settings.drift.name == "none":
        return timeline
    return with_drift(timeline, plugins.create(Drift, settings.drift), data, seed)


def _refuse_impossible(scenario: Scenario, timeline: Any, samples: int, test_samples: int) -> None:
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
        "held_out test samples": ([item.test for item in timeline.held_out], test_samples),
        "held_out validation samples": ([item.validation for item in timeline.held_out], samples),
        "held_out training samples": ([item.train for item in timeline.held_out], samples),
    }
    for name, (arrays, end) in indices.items():
        for array in arrays:
            if array.dtype != np.int64 or array.ndim != 1 or (len(array) and not 0 <= array.min() <= array.max() < end):
                raise broken_contract(scenario, "timeline", f"{name} as int64 numbers [n] from 0 to {end - 1}")
    if timeline.rounds == 0:
        raise broken_contract(scenario, "timeline", "one round or more")
