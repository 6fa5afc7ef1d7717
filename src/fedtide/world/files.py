"""Timelines in files, named after what they were made from."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.hashing import short_hash
from fedtide.scenarios.base import Scenario
from fedtide.settings.run import RunSettings
from fedtide.world.build import build_timeline
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


def world_identity(settings: RunSettings, data: Dataset) -> str:
    """Hash of everything the timeline depends on: settings, data, and the content of files a scenario reads.

    Raises:
        SettingsError: such a file is missing.
    """
    files = plugins.create(Scenario, settings.scenario).files()
    if missing := [str(file) for file in files if not file.is_file()]:
        raise SettingsError(f"scenario {settings.scenario.name}: no file {', '.join(missing)}")
    return short_hash(
        [settings.world(), data.digest, *(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)]
    )


def world_file(folder: Path, settings: RunSettings, data: Dataset) -> Path:
    """The file in which the partition stage keeps the timeline of these settings."""
    return folder / f"seed-{settings.canonical()['world_seed']}-{world_identity(settings, data)}.npz"


def timeline_for(settings: RunSettings, data: Dataset, folder: Path | None = None) -> Timeline:
    """The timeline written by the partition stage, if it is for these settings, else a new one."""
    path = world_file(folder, settings, data) if folder else None
    if path and path.is_file():
        try:
            return Timeline.load(path)
        except (OSError, ValueError, KeyError) as error:
            raise SettingsError(f"{path} is damaged ({error}); delete it and run the partition stage again") from None
    return build_timeline(settings, data)
