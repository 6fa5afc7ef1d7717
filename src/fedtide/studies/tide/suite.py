"""The suite: its worlds, what they are made of, and what a run in them may cost."""

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from fedtide.core.discovery.shipped import TIDE
from fedtide.core.errors import SettingsError, nearest
from fedtide.core.plugins import SettingsModel
from fedtide.records.run_directory import read_json
from fedtide.settings.params import Params, parse
from fedtide.settings.reading.yaml_files import read_mapping
from fedtide.settings.run import RunSettings
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data
from fedtide.world.timeline import Timeline

REFERENCE = "fedavg"
"""The method that others are compared with."""

REFERENCE_LINES = ("pooled", "local")
"""Baselines beside the methods: their settings belong to the world, and they have no place in the order."""

_CHOSEN = frozenset(
    {
        *("algorithm", "initializer", "objective", "communication", "aggregation", "uplink", "downlink", "detector"),
        *("privacy", "client_state", "mode"),
    }
)
"""Settings of a run that a method chooses."""

_CHOSEN_LOCAL = frozenset(
    {
        *("lr", "schedule", "decay", "min_lr_ratio", "power", "warmup", "restart"),
        *("optimizer", "momentum", "nesterov", "momentum_scope", "weight_decay", "clip", "clip_scope"),
    }
)
"""The same of training on a client; its amount and its batches belong to the world."""


class Limits(SettingsModel):
    """What a world is made of, and what a run in it may cost; an entry of ``suite.json``."""

    file: str = Field(description="SHA-256 of the world's settings file")
    data: str = Field(description="digest of the prepared data")
    timelines: dict[int, str] = Field(description="digest of the timeline by seed")
    trivial: float = Field(description="score of a constant prediction, which a run that diverged gets")
    bytes: float = Field(ge=1, description="most bytes of a run, in both directions")  # integers end at 2^31 here
    seconds: dict[int, float] | None = Field(
        None, description="simulated seconds by seed after which evaluations no longer count; null: all count"
    )


class _Suite(SettingsModel):
    """The file ``suite.json``."""

    name: str = Field(description="of the suite")
    worlds: dict[str, Limits] = Field(description="limits by name of the world")


@dataclass(frozen=True)
class World:
    """A world of the suite.

    Attributes:
        name: of its settings file. raw: that file's content; its ``compare.seeds`` are the seeds of the board, its ``tune`` has
            the search's trials, metric and rounds, which on the test split are the score. limits: see :class:`Limits`.
        suite: name of the suite.
    """

    name: str
    raw: Mapping[str, Any]
    limits: Limits
    suite: str

    @property
    def params(self) -> Params:
        """The world with the reference method at its defaults."""
        return Params(dict(self.raw), f"world {self.name}")

    @cached_property
    def timelines(self) -> dict[int, Timeline]:
        """Timelines by seed, built from the settings: once for all methods that are verified."""
        params, data = self.params, load_data(self.params.run())
        return {seed: timeline_for(params.run(seed=seed), data) for seed in params.experiment.compare.seeds}

    def with_method(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The content of a settings file that runs a method here; groups of both are merged one level deep."""
        merged = copy.deepcopy(dict(self.raw))
        for key, value in settings.items():
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, Mapping) else value
        return merged


def suite(folder: Path = TIDE) -> dict[str, World]:
    """The worlds by name, in the order of ``suite.json``.

    Raises:
        SettingsError: a file is missing, or is not the one that the suite was frozen with.
    """
    listed: _Suite = parse(_Suite, read_json(folder / "suite.json") or {}, "suite.json")
    found = {}
    for name, limits in listed.worlds.items():
        path = folder / "worlds" / f"{name}.yaml"
        if not path.is_file() or file_hash(path) != limits.file:
            raise SettingsError(f"{path}: the file differs from the frozen one of {listed.name}; reinstall fedtide")
        found[name] = World(name, read_mapping(path), limits, listed.name)
    return found


def chosen_worlds(names: list[str] | None, folder: Path = TIDE) -> list[World]:
    """Worlds by name, all if none are named; a SettingsError for one that there is not."""
    worlds = suite(folder)
    for name in names or ():
        if name not in worlds:
            raise SettingsError(nearest(f"--world {name}: not a world of the suite", name, worlds))
    return [world for name, world in worlds.items() if not names or name in names]


def file_hash(path: Path) -> str:
    """SHA-256 of a file's lines, whatever ends them."""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def given(settings: RunSettings) -> dict[str, Any]:
    """What of a run's settings belongs to the world, JSON-able: all that a method does not choose."""
    values = {key: value for key, value in settings.canonical().items() if key not in _CHOSEN}
    values["local"] = {key: value for key, value in values["local"].items() if key not in _CHOSEN_LOCAL}
    values["engine"] = {key: value for key, value in values.get("engine", {}).items() if key == "callbacks"}
    return values


def chosen(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What a method has chosen of the settings that a run has recorded."""
    local = {key: value for key, value in recorded.get("local", {}).items() if key in _CHOSEN_LOCAL}
    return {"local": local} | {key: value for key, value in recorded.items() if key in _CHOSEN}


def given_of(recorded: Mapping[str, Any], own: RunSettings, source: str) -> dict[str, Any]:
    """What belongs to the world of the settings that a run has recorded; its method's plug-ins need not be there.

    ``own``: settings of the world, which stand in for what the method has chosen. A SettingsError if they are not settings.
    """
    stand_in = {key: value for key, value in own.model_dump(mode="json").items() if key in _CHOSEN}
    settings: RunSettings = parse(RunSettings, {**recorded, **stand_in}, source)
    return given(settings)


def difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    """The first setting that differs between two results of :func:`given`, by its dotted name; None if none does."""
    for key in sorted(here.keys() | there.keys()):
        mine, theirs = here.get(key), there.get(key)
        if mine == theirs:
            continue
        if isinstance(mine, dict) and isinstance(theirs, dict):
            key += "." + next(name for name in sorted(mine | theirs) if mine.get(name) != theirs.get(name))
        return key
    return None


def refuse_other_world(settings: RunSettings, own: RunSettings, source: str) -> None:
    """Refuse settings that differ from the world's ``own`` in what a method does not choose."""
    if key := difference(given(settings), given(own)):
        raise SettingsError(
            f"{source}: sets {key}, which belongs to the world; a method chooses {', '.join(sorted(_CHOSEN))}, and of local "
            f"{', '.join(sorted(_CHOSEN_LOCAL))}"
        )
