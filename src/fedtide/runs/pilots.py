"""Shared pilot sessions: they do not depend on the initialiser, so the first run of a comparison trains them for all.

``<runs>/pilots/<key>/`` holds the state after the last pilot round and the records up to it, in one hashed file.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L

from fedtide.core.errors import SettingsError
from fedtide.core.files import remove_all_parts, remove_dead_parts
from fedtide.core.locks import Lock
from fedtide.federation.module import FederatedModule
from fedtide.federation.saving import checkpoint
from fedtide.federation.saving.checkpoint import Saved
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.identity import run_key
from fedtide.settings.kinds import InitialiserSettings
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


def pilot_rounds(timeline: Timeline) -> int:
    """Number of rounds of the pilot sessions; 0 if no session follows them."""
    rounds = int((timeline.session_of_round < timeline.pilot).sum())
    return rounds if rounds < timeline.rounds else 0


def pilot_key(settings: RunSettings, data: Dataset) -> str:
    """The run key without the initialiser."""
    anyone = {"initialiser": InitialiserSettings(name="previous"), "initialiser_label": "pilot"}
    return run_key(settings.model_copy(update=anyone), data)


class SharedPilot(L.Callback):
    """The pilot of all runs that differ in the initialiser alone.

    ``with SharedPilot(...) as pilot: saved = pilot.adopt(saved)`` then fit with the pilot as a callback. Of several
    processes one trains the pilot, under a lock that is released when the process ends, and the others wait. Its ``folder`` is
    shared, ``directory`` that of the run, open for writing; ``rounds`` is 0 if no pilot is shared.
    """

    def __init__(
        self, folder: Path, rounds: int, directory: RunDirectory, key: str, log: Callable[[str], None]
    ) -> None:
        self.folder, self.rounds, self.directory, self.key, self.log = folder, rounds, directory, key, log
        self._lock, self._new = Lock(folder / ".lock"), False

    def __enter__(self) -> SharedPilot:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._new and self._lock.is_locked and isinstance(error, SettingsError):  # bad settings leave nothing behind
            with contextlib.suppress(OSError):
                shutil.rmtree(self.folder)
                self.folder.parent.rmdir()
        self._lock.release()

    def adopt(self, saved: Saved | None, stopped: Callable[[], bool] = lambda: False) -> Saved | None:
        """The state to continue from: the run's own if it has done the pilot, else the shared one, with its records.

        If there is no shared pilot yet, this run trains it and keeps the lock meanwhile. A true ``stopped()`` ends the wait
        for another run that trains it.
        """
        if (saved.round if saved else 0) >= self.rounds:
            self._tidy()
            return saved
        if not self._acquire(stopped):
            return saved
        shared = self._load()
        if shared is None:
            return saved
        for path in checkpoint.generations(self.directory.state):
            path.unlink()  # of fewer rounds, with other records
        self.directory.adopt(shared.values.pop("tables"), shared.values.pop("sessions"))
        marks = self.directory.mark_records()
        checkpoint.save(self.directory.state, Saved(self.key, self.rounds, marks, shared.values))
        self._lock.release()
        self.directory.event("adopted", round=self.rounds, pilot=self.folder.name)
        self.log(f"{self.directory.path.name}: continuing from the shared pilot, round {self.rounds}")
        return checkpoint.load(self.directory.state, self.key)[0]

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Share the pilot when its last round is recorded."""
        if not self._lock.is_locked or not isinstance(pl_module, FederatedModule):
            return
        if pl_module.state.round == self.rounds and pl_module.diverged is None:
            self._share(pl_module.state.tensors())
            self._lock.release()

    def _tidy(self) -> None:
        """Remove what this run has left if it was killed while it shared the pilot, unless another run shares it now."""
        remove_dead_parts(self.folder)
        if self.folder.exists() and self._lock.acquire(0):
            checkpoint.sweep(self.folder)
            self._lock.release()

    def _acquire(self, stopped: Callable[[], bool]) -> bool:
        self._new = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        waited = False
        while not stopped():
            if self._lock.acquire(0.2 if waited else 0):
                remove_all_parts(self.folder)
                return True
            if not waited:
                self.log(f"{self.directory.path.name}: waiting for another run to train the pilot{self._lock.owner()}")
            waited = True
        return False

    def _load(self) -> Saved | None:
        try:
            shared, _ = checkpoint.load(self.folder, self.folder.name)
        except SettingsError:
            for path in checkpoint.generations(self.folder):
                path.unlink()
            self.log(f"{self.folder}: the shared pilot is damaged or belongs to other runs; training it again")
            return None
        return shared

    def _share(self, state: dict[str, Any]) -> None:
        shared = {**state, "tables": self.directory.tables(), "sessions": self.directory.sessions()}
        checkpoint.save(self.folder, Saved(self.folder.name, self.rounds, {}, shared), keep=1)
