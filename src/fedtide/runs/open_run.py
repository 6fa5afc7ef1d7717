"""The first part of a run: its dataset, run key and directory, and its world once it is to be trained.

The run key is a hash of settings, data and code, so that equal keys mean equal results.
"""

import platform
import socket
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

from fedtide.core import plugins
from fedtide.core.discovery.imports import own_files
from fedtide.core.discovery.source import closure, fingerprint, fingerprint_files, fingerprint_of, source_file
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import short_hash
from fedtide.records.run_directory import RunDirectory
from fedtide.records.summary import Summary
from fedtide.runs.display.progress import UNWATCHED, Watch
from fedtide.runs.workspace import Workspace
from fedtide.settings.choices import plugins_in
from fedtide.settings.run import RunSettings, plain_name
from fedtide.training.models.base import Model
from fedtide.world.building.build import timeline_for, world_identity
from fedtide.world.dataset import Dataset
from fedtide.world.scenarios.base import Scenario
from fedtide.world.storage.prepared import content_hashes, load_data
from fedtide.world.timeline import Timeline

NO_STATE = (
    "{}: the run has ended, but {}, and no checkpoint is left to restore it from; put it back, or delete the run directory to "
    "start the run again"
)


@dataclass(frozen=True)
class OpenRun:
    """A run to execute: its settings, dataset and run key, where its records go and what follows its progress."""

    settings: RunSettings
    data: Dataset
    key: str
    directory: RunDirectory
    workspace: Workspace
    watch: Watch

    @cached_property
    def timeline(self) -> Timeline:
        """The run's world, built or read when it is first asked for."""
        return timeline_for(self.settings, self.data, self.workspace.worlds)

    @property
    def world(self) -> str:
        """The identity of the timeline, which its file keeps."""
        return world_identity(self.settings, self.data)

    @property
    def manifest(self) -> Summary:
        """The entries of ``manifest.json``: what the run is."""
        settings = self.settings
        manifest: Summary = {
            "run_key": self.key,
            "label": settings.label,
            "algorithm": settings.algorithm.name,
            "initializer": settings.initializer_label,
            "scenario": settings.scenario.name,
            "dataset": settings.data.name,
            "seed": settings.seed,
            "data": self.data.digest,
            "timeline": self.timeline.digest,
            "rounds": self.timeline.rounds,
        }
        return manifest if settings.task == "classification" else manifest | {"task": settings.task}

    @property
    def recorded(self) -> dict[str, Any]:
        """Settings as recorded: those that determine the run, and its labels."""
        labels = {"label": self.settings.label, "initializer_label": self.settings.initializer_label}
        return {**self.settings.canonical(), **labels}

    def ended(self) -> Summary | None:
        """The summary of a run that has ended, which is logged; its checkpoints go unless settings keep them.

        Raises:
            SettingsError: the summary is missing although the run has ended.
        """
        if (done := self.directory.finished(self.key, self.settings.checkpoint.keep_finished)) is not None:
            self.watch.log(f"{self.directory.path.name}: already {done['state']}, nothing to do")
        elif self.directory.has_lost_summary:
            raise SettingsError(NO_STATE.format(self.directory.path, "summary.json is missing"))
        return done


def open_run(
    settings: RunSettings,
    workspace: Workspace,
    *,
    name: str | None = None,
    watch: Watch = UNWATCHED,
    expected: str | None = None,
) -> OpenRun:
    """Load the dataset and find the run's key and directory; nothing is written but the prepared dataset.

    Raises:
        SettingsError: bad input, or the key is not the ``expected`` one, since code or data differ.
    """
    data = load_data(settings)
    key = run_key(settings, data)
    if expected not in (None, key):
        raise SettingsError(
            f"{socket.gethostname()}: code or data differ from those of the command: {expected} would be {key} there; "
            "install the same version, with the same plug-ins and packages"
        )
    directory = RunDirectory(workspace.runs / (key if name is None else plain_name(name)))
    return OpenRun(settings, data, key, directory, workspace, watch)


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
    hashes = content_hashes(files)
    return [fingerprint(modules(settings)), *own, *(hashes[str(file)] for file in files)]


def environment(settings: RunSettings, device: str) -> dict[str, dict[str, str]]:
    """``sources``: hashes of those that a run depends on, by module or file. ``versions``: of what executes it, and where."""
    model, scenario = plugins.create(Model, settings.model), plugins.create(Scenario, settings.scenario)
    own = [model.sources(), *(own_files(each.path, "engine.callbacks") for each in settings.engine.callbacks)]
    named = [(module, source_file(module)) for module in modules(settings)]
    named += [pair for files in own for pair in files.items()]
    sources = {module: fingerprint_of(file) for module, file in named if file is not None}
    sources |= {file: text[:12] for file, text in content_hashes([*model.files(), *scenario.files()]).items()}
    versions = {"python": platform.python_version(), "system": platform.platform(), "device": device}
    versions |= {name: version(name) for name in ("torch", "lightning", "numpy")}
    return {"sources": sources, "versions": versions}


def run_key(settings: RunSettings, data: Dataset) -> str:
    """``<label>-<initializer label>-s<seed>-<12 hex digits>`` of settings, data, world and code."""
    parts = [settings.canonical(), data.digest, world_identity(settings, data), *code(settings)]
    return f"{settings.label}-{settings.initializer_label}-s{settings.seed}-{short_hash(parts)}"
