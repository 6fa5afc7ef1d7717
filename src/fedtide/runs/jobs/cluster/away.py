"""Runs on a machine that shares no folder with the command: records come from there, and go back as they grow."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
from filelock import FileLock

from fedtide.core import plugins, system
from fedtide.core.errors import SettingsError, TakenOver
from fedtide.core.files import write_bytes
from fedtide.data.base import DatasetPlugin
from fedtide.records.run_directory import PILOTS
from fedtide.records.states import generations
from fedtide.runs.jobs.cluster.home import Fetch, FetchData, Store, file_names, read_files, write_files
from fedtide.runs.jobs.jobs import Ask, Work
from fedtide.settings.run import RunSettings
from fedtide.world.sources import MIRROR_VARIABLE
from fedtide.worlds.prepared import prepared_file


class Away:
    """Does jobs, which have a ``workspace``, in the folder ``scratch`` here; ``home`` names the command's folder of runs.

    ``every``: seconds between two saved states that are sent; if the machine is lost, what came later is computed again.
    """

    def __init__(self, work: Work[Any, Any], scratch: Path, home: str, every: float) -> None:
        self._work, self._data, self._every = work, scratch / "data", every
        place = scratch / home
        self.runs = place / str(os.getpid())
        (place / PILOTS).mkdir(parents=True, exist_ok=True)
        for left in place.iterdir():
            if left.name.isdecimal() and not system.here.is_alive(int(left.name)):
                shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(self.runs, ignore_errors=True)  # of a process of the same number
        self.runs.mkdir()
        (self.runs / PILOTS).symlink_to(place / PILOTS)  # one process of the machine trains a pilot for all

    def __call__(self, job: Any, ask: Ask) -> Any:
        visits = _Visits(self._data, self._every, ask)
        workspace = replace(job.workspace, runs=self.runs, worlds=None, visit=visits.visit)
        try:
            return self._work(replace(job, workspace=workspace), ask)
        finally:
            for folder in visits.folders:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.runs, ignore_errors=True)


class _Visits:
    """The run directories of a job while they are on this machine."""

    def __init__(self, data: Path, every: float, ask: Ask) -> None:
        self._data, self._every, self._ask = data, every, ask
        self.folders: list[Path] = []

    @contextmanager
    def visit(
        self, settings: RunSettings, folder: Path, callbacks: Sequence[L.Callback]
    ) -> Iterator[tuple[RunSettings, Sequence[L.Callback]]]:
        """Bring data and records of a run here; send the records back during the run, and at its end, however it ends."""
        settings = self._with_data(settings)
        found = self._ask(Fetch(folder.name))
        if not isinstance(found, tuple):
            raise SettingsError(str(found))
        self.folders.append(folder)
        write_files(folder, found)
        sender = _Sender(folder, self._every, self._ask)
        try:
            yield settings, [*callbacks, sender]
        finally:
            sender.send()

    def _with_data(self, settings: RunSettings) -> RunSettings:
        """The dataset in this machine's folder: prepared from a mirror, or sent; once, whichever process needs it first."""
        here = settings.model_copy(
            update={"data": settings.data.model_copy(update={"root": str(self._data), "mirror": None})}
        )
        path = prepared_file(plugins.create(DatasetPlugin, here.data), self._data)
        if MIRROR_VARIABLE in os.environ:
            return here
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".sent.lock")):
            if not path.is_file() and (content := self._ask(FetchData(settings))) is not None:
                write_bytes(path, zlib.decompress(content), durable=True)
        return here


class _Sender(L.Callback):
    """Sends the records home when the state was saved."""

    def __init__(self, folder: Path, every: float, ask: Ask) -> None:
        self._folder, self._every, self._ask, self._last = folder, every, ask, system.here.monotonic()
        self._sent: dict[str, tuple[int, int]] = _versions(folder)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        newest = generations(self._folder / "state")[:1]
        if (
            newest
            and f"state/{newest[0].name}" not in self._sent
            and system.here.monotonic() - self._last >= self._every
        ):
            self.send()

    def send(self) -> None:
        now, names = _versions(self._folder), file_names(self._folder)
        changed = [name for name in names if self._sent.get(name) != now[name]]
        if refusal := self._ask(Store(self._folder.name, read_files(self._folder, changed), names)):
            raise TakenOver(refusal)
        self._sent, self._last = now, system.here.monotonic()


def _versions(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of the last change of each file."""
    states = [(name, (folder / name).stat()) for name in file_names(folder)]
    return {name: (state.st_size, state.st_mtime_ns) for name, state in states}
