"""The run key: a hash of settings, data and code, so that equal keys mean equal results."""

from __future__ import annotations

from pathlib import Path

from fedtide.core import plugins
from fedtide.core.discovery.imports import own_files
from fedtide.core.discovery.source import closure, fingerprint, fingerprint_files
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import short_hash
from fedtide.settings.choices import plugins_in
from fedtide.settings.run import RunSettings
from fedtide.training.models.base import Model
from fedtide.world.building.build import world_identity
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import content_hashes

_ROOTS = ("fedtide.federation.module", "fedtide.world.building.build")

_AREAS = ("federation", "methods", "training", "world")
"""Areas that can change a number of a run. Settings enter the key by value, data by content."""

_BY_CONTENT = ("fedtide.world.adapters.", "fedtide.world.data.")

_TEXTS = frozenset({"fedtide.methods.algorithms._preview"})
"""Modules of these areas that only make texts."""


def _can_change_numbers(module: str) -> bool:
    if module in _TEXTS or module.startswith(_BY_CONTENT):
        return False
    if not module.startswith("fedtide."):  # of a package that brings plug-ins
        return True
    return module.split(".")[1] in _AREAS or module == "fedtide.core.randomness"


def read_sources() -> None:
    """Read the sources that every run depends on, once for this process and those forked from it."""
    fingerprint(closure(_ROOTS, _can_change_numbers))


def modules(settings: RunSettings) -> list[str]:
    """Modules whose source a run depends on: world, engine, federation, and only the plug-ins it uses."""
    named = [plugins.module_of(kind, name) for kind, name in plugins_in(settings) if kind != "data"]
    return closure([*_ROOTS, *named], _can_change_numbers)


def code(settings: RunSettings) -> list[str]:
    """Hashes of the code that a run depends on: the project's, the user's (of model and callbacks), files of the model."""
    model = plugins.create(Model, settings.model)
    sources, files = model.sources(), model.files()
    if missing := [str(file) for file in files if not file.is_file()]:
        raise SettingsError(f"model {settings.model.name}: no file {', '.join(missing)}")
    own = [fingerprint_files(sources.items())] if sources else []
    called = {
        module: file
        for number, callback in enumerate(settings.engine.callbacks)
        for module, file in own_files(callback.path, f"engine.callbacks.{number}.path").items()
    }
    own += [fingerprint_files(sorted(called.items()))] if called else []
    hashes = content_hashes(files, Path(settings.data.root) / "models.json") if files else {}
    return [fingerprint(modules(settings)), *own, *(hashes[str(file)] for file in files)]


def run_key(settings: RunSettings, data: Dataset) -> str:
    """``<label>-<initializer label>-s<seed>-<12 hex digits>`` of settings, data, world and code."""
    parts = [settings.canonical(), data.digest, world_identity(settings, data), *code(settings)]
    return f"{settings.label}-{settings.initializer_label}-s{settings.seed}-{short_hash(parts)}"
