"""Timelines in files, named after what they were made from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fedtide.core import plugins
from fedtide.core.discovery.source import closure, fingerprint
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import short_hash
from fedtide.settings.run import Async, RunSettings
from fedtide.world.building.build import build_timeline
from fedtide.world.dataset import Dataset
from fedtide.world.scenarios.base import Scenario
from fedtide.world.timeline import Timeline

_PACKAGES = frozenset({"world", "worlds", "partitions", "scenarios", "drift"})


def scenarios(settings: RunSettings) -> list[str]:
    """Names of the run's scenario and of those that it is made of."""
    chosen: Any = settings.scenario
    found = list[str]()
    while chosen is not None:
        found.append(chosen.name)
        chosen = getattr(chosen, "of", None)
    return found


def world_origin(settings: RunSettings) -> list[str]:
    """What the timeline depends on besides its settings and data.

    Hashes of sources and of the files that a scenario reads, refused if missing; and the clock, if clients come and go in its
    seconds.
    """
    scenario = plugins.create(Scenario, settings.scenario)
    files = scenario.files()
    if missing := [str(file) for file in files if not file.is_file()]:
        raise SettingsError(f"scenario {settings.scenario.name}: no file {', '.join(missing)}")
    chosen = {"partitions": settings.partition.name, "drift": settings.drift.name}
    makers = [*chosen.items(), *(("scenarios", name) for name in scenarios(settings))]
    roots = ["fedtide.world.building.build", *(plugins.module_of(kind, name) for kind, name in makers)]
    sources = closure(roots, lambda name: name.split(".")[1] in _PACKAGES or name == "fedtide.core.randomness")
    clock = ["events"] if scenario.in_seconds and isinstance(settings.mode, Async) else []
    return [fingerprint(sources), *(hashlib.sha256(file.read_bytes()).hexdigest() for file in files), *clock]


def world_identity(settings: RunSettings, data: Dataset) -> str:
    """Hash of everything the timeline depends on; raises as :func:`world_origin`."""
    return short_hash([settings.world(), data.digest, *world_origin(settings)])


def world_file(folder: Path, settings: RunSettings, identity: str) -> Path:
    """The file in which the partition stage keeps the timeline of an identity."""
    return folder / f"seed-{settings.canonical()['world_seed']}-{identity}.npz"


def timeline_for(settings: RunSettings, data: Dataset, folder: Path | None = None) -> Timeline:
    """The timeline written by the partition stage, if it is for these settings, else a new one.

    A SettingsError if the file is damaged or holds another timeline.
    """
    if folder is not None:
        identity = world_identity(settings, data)
        path = world_file(folder, settings, identity)
        if path.is_file():
            try:
                return Timeline.load(path, identity)
            except SettingsError as error:
                raise SettingsError(f"{error}; delete it, or run the partition stage again") from None
    return build_timeline(settings, data)
