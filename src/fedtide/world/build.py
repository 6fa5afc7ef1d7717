"""From settings to a timeline."""

from __future__ import annotations

import numpy as np

from fedtide.core import plugins
from fedtide.partitions.base import Partition
from fedtide.scenarios.base import Scenario, WorldInput
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset
from fedtide.world.holdout import hold_out
from fedtide.world.longtail import thin
from fedtide.world.samples import test_samples, training_samples
from fedtide.world.timeline import Timeline
from fedtide.world.validation import stratified_split


def build_timeline(settings: RunSettings, data: Dataset) -> Timeline:
    """The timeline: long-tail thinning, held-out samples, partition, scenario, all keyed by the world's seed.

    Raises:
        SettingsError: the request is impossible.
    """
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
        samples, train, validation, data.num_classes, partition, seed, test_samples(data), data.origins.unit
    )
    return scenario.timeline(world)
