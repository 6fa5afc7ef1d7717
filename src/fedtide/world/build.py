"""From settings to a timeline."""

from __future__ import annotations

import numpy as np

from fedtide.core import plugins
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
    return plugins.create(Scenario, settings.scenario).timeline(world)
