"""The dataset of a run that was recorded earlier, if it is prepared on this machine."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import RunDirectory, read_json
from fedtide.settings.params import parse
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load, prepared_file


def stored_data(directory: RunDirectory, root: Path) -> Dataset | None:
    """The dataset that a run was made with, ``None`` if it is not there, or is another one now; nothing is downloaded."""
    facts, settings = (read_json(directory.path / name) or {} for name in ("manifest.json", "settings.json"))
    found = _load(json.dumps(settings.get("data")), root)
    return found if found is not None and found.digest == facts.get("data") else None


@functools.lru_cache(maxsize=1)
def _load(chosen: str, root: Path) -> Dataset | None:
    try:
        values = json.loads(chosen)
        plugin_class = plugins.load(DatasetPlugin, values["name"])
        plugin = plugin_class(parse(plugin_class.Settings, {**values, "root": str(root)}))
        if plugin.resources and not prepared_file(plugin, root).is_file():
            return None
        return load(plugin, root)
    except (SettingsError, KeyError, TypeError, OSError):
        return None
