"""From settings to a timeline, made anew or read from the file of the timeline stage."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.core import plugins
from fedtide.core.array_types import Ints
from fedtide.core.discovery.faults import broken_contract
from fedtide.core.discovery.source import closure, fingerprint
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import short_hash
from fedtide.settings.run import Async, RunSettings
from fedtide.world.building.drifting import with_drift
from fedtide.world.dataset import Dataset, samples_of
from fedtide.world.drift.base import Drift
from fedtide.world.partitions.base import Partition
from fedtide.world.scenarios.base import Scenario, WorldInput
from fedtide.world.splits.holdout import hold_out, stratified_split
from fedtide.world.splits.longtail import thin
from fedtide.world.timeline import Timeline


def build_timeline(settings: RunSettings, data: Dataset) -> Timeline:
    """A new timeline: long-tail thinning, held-out samples, partition, scenario, drift, all keyed by the world's seed."""
    seed = settings.seed if settings.world_seed is None else settings.world_seed
    samples, test = samples_of(data, "train"), samples_of(data, "test")
    partition, scenario = plugins.create(Partition, settings.partition), plugins.create(Scenario, settings.scenario)
    kept, tail = np.arange(len(samples), dtype=np.int64), settings.long_tail
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
        *(samples, train, validation, data.num_classes, partition, seed, test, data.origins.unit),
        events=isinstance(settings.mode, Async),
    )
    timeline = scenario.timeline(world)
    _refuse_impossible(scenario, timeline, len(samples), len(data.test_labels))
    timeline = partition.evaluated(timeline, samples, test)
    if len(untested(timeline)) == timeline.rounds:
        raise SettingsError("no round has test samples; choose longer periods, or hold out more")
    if settings.drift.name == "none":
        return timeline
    return with_drift(timeline, plugins.create(Drift, settings.drift), data, seed)


def untested(timeline: Timeline) -> Ints:
    """Rounds (0-based) without a test sample to evaluate on, which have no score, ascending int64."""
    held = map(timeline.evaluated_at, range(timeline.rounds))
    return np.flatnonzero([part is not None and not len(part.test) for part in held])


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


def world_origin(settings: RunSettings) -> list[str]:
    """What the timeline depends on besides its settings and data: hashes of sources, and of the files that a scenario reads.

    Also the clock, if clients come and go in its seconds. A file that is missing is a SettingsError.
    """
    scenario = plugins.create(Scenario, settings.scenario)
    files = scenario.files()
    if missing := [str(file) for file in files if not file.is_file()]:
        raise SettingsError(f"scenario {settings.scenario.name}: no file {', '.join(missing)}")
    makers = [("partitions", settings.partition.name), ("drift", settings.drift.name)]
    chosen: Any = settings.scenario
    while chosen is not None:
        makers.append(("scenarios", chosen.name))
        chosen = getattr(chosen, "of", None)  # the scenario that this one is made of
    roots = ["fedtide.world.building.build", *(plugins.module_of(kind, name) for kind, name in makers)]
    sources = closure(roots, _can_change_timelines)
    clock = ["events"] if scenario.in_seconds and isinstance(settings.mode, Async) else []
    return [fingerprint(sources), *(hashlib.sha256(file.read_bytes()).hexdigest() for file in files), *clock]


def _can_change_timelines(module: str) -> bool:
    if not module.startswith("fedtide."):  # of a package that brings plug-ins
        return True
    return module.split(".")[1] == "world" or module == "fedtide.core.randomness"


def world_identity(settings: RunSettings, data: Dataset) -> str:
    """Hash of everything the timeline depends on."""
    return short_hash([settings.world(), data.digest, *world_origin(settings)])


def world_file(folder: Path, settings: RunSettings, identity: str) -> Path:
    """The file in which the timeline stage keeps the timeline of an identity."""
    return folder / f"seed-{settings.canonical()['world_seed']}-{identity}.npz"


def timeline_for(settings: RunSettings, data: Dataset, folder: Path | None = None) -> Timeline:
    """The timeline written by the timeline stage, if it is for these settings, else a new one."""
    if folder is not None:
        identity = world_identity(settings, data)
        path = world_file(folder, settings, identity)
        if path.is_file():
            try:
                return Timeline.load(path, identity)
            except SettingsError as error:
                raise SettingsError(f"{error}; delete it, or run the timeline stage again") from None
    return build_timeline(settings, data)
