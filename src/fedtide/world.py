"""From settings to the two things a run starts with: the dataset and the timeline."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from fedtide import plugins
from fedtide.data.base import DatasetPlugin, DatasetSettings
from fedtide.data.dataset import Dataset
from fedtide.data.longtail import thin
from fedtide.data.prepared import load
from fedtide.data.validation import cut
from fedtide.errors import SettingsError
from fedtide.identity import run_key, short_hash
from fedtide.scenarios.base import WorldInput
from fedtide.scenarios.timeline import Timeline
from fedtide.settings import RunSettings


def load_data(settings: RunSettings) -> Dataset:
    """The dataset, fetched and prepared if need be."""
    choice: DatasetSettings = settings.data  # type: ignore[assignment]
    plugin: DatasetPlugin = plugins.load("data", choice.name)(choice)  # type: ignore[assignment]
    return load(plugin, Path(choice.root), Path(choice.mirror) if choice.mirror else None)


def build_timeline(settings: RunSettings, data: Dataset) -> Timeline:
    """The timeline: long-tail thinning, validation cut, partition, scenario, all keyed by the world's seed.

    Raises:
        SettingsError: the request is impossible.
    """
    labels = data.train_labels.cpu().numpy().astype(np.int64)
    seed = settings.seed if settings.world_seed is None else settings.world_seed
    tail = settings.long_tail
    kept = np.arange(len(labels), dtype=np.int64)
    if tail.imbalance is not None:
        kept = thin(labels, tail.imbalance, tail.mode, tail.order, seed)
    train, validation = cut(labels, kept, settings.validation, seed)
    partition = plugins.load("partitions", settings.partition.name)(settings.partition)
    scenario = plugins.load("scenarios", settings.scenario.name)(settings.scenario)
    world = WorldInput(labels, train, validation, data.num_classes, partition, seed)  # type: ignore[arg-type]
    return scenario.timeline(world)  # type: ignore[attr-defined, no-any-return]


def world_identity(settings: RunSettings, data: Dataset) -> str:
    """Hash of everything the timeline depends on: settings, data, and the content of files a scenario reads.

    Raises:
        SettingsError: such a file is missing.
    """
    files = plugins.load("scenarios", settings.scenario.name)(settings.scenario).files()  # type: ignore[attr-defined]
    if missing := [str(file) for file in files if not file.is_file()]:
        raise SettingsError(f"scenario {settings.scenario.name}: no file {', '.join(missing)}")
    return short_hash(
        [settings.world(), data.digest, *(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)]
    )


def world_file(folder: Path, settings: RunSettings, data: Dataset) -> Path:
    """Where the partition stage keeps the timeline of these settings."""
    return folder / f"seed-{settings.canonical()['world_seed']}-{world_identity(settings, data)}.npz"


def key_of(settings: RunSettings, data: Dataset) -> str:
    """The run key of settings on a dataset."""
    return run_key(settings, data.digest, world_identity(settings, data))


def timeline_for(settings: RunSettings, data: Dataset, folder: Path | None = None) -> Timeline:
    """The timeline written by the partition stage, if it is for these settings, else a new one."""
    path = world_file(folder, settings, data) if folder else None
    if path and path.is_file():
        try:
            return Timeline.load(path)
        except (OSError, ValueError, KeyError) as error:
            raise SettingsError(f"{path} is damaged ({error}); delete it and run the partition stage again") from None
    return build_timeline(settings, data)


def digest(timeline: Timeline) -> str:
    """Hash of who holds what when; stored with a run and compared when it resumes."""
    value = hashlib.sha256()
    arrays = [timeline.assignment_of_round, timeline.session_of_round, timeline.view_of_round, timeline.validation]
    for array in [*arrays, timeline.label_views, *timeline.shards]:
        value.update(np.ascontiguousarray(array).tobytes())
    for item in timeline.assignments:
        value.update(item.clients.tobytes() + item.shards.tobytes())
    return value.hexdigest()[:12]
