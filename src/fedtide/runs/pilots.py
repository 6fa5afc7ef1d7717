"""Shared pilot sessions: they do not depend on the initializer, so runs that differ in it alone train them once.

``<runs>/pilots/<key>/`` holds a saved state after the last pilot round, with the records up to it. Runs do not wait for each
other: those that begin before there is a pilot train their own, and the first to finish it shares it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning as L

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import remove_dead_parts
from fedtide.core.storage.locks import Lock
from fedtide.federation.module import FederatedModule
from fedtide.federation.saving import checkpoint
from fedtide.federation.saving.checkpoint import Saved
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.open_run import run_key
from fedtide.settings.run import InitializerSettings, RunSettings
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


def pilot_rounds(timeline: Timeline) -> int:
    """Number of rounds of the pilot sessions; 0 if no session follows them."""
    rounds = int((timeline.session_of_round < timeline.pilot).sum())
    return rounds if rounds < timeline.rounds else 0


def pilot_key(settings: RunSettings, data: Dataset) -> str:
    """The run key without the initializer."""
    anyone = {"initializer": InitializerSettings(name="previous"), "initializer_label": "pilot"}
    return run_key(settings.model_copy(update=anyone), data)


class SharedPilot(L.Callback):
    """The pilot of all runs that differ in the initializer alone: ``saved = pilot.adopt(saved)``, then fit with this callback.

    Its ``folder`` is shared, ``directory`` that of the run, open for writing; ``rounds`` is 0 if no pilot is shared.
    """

    def __init__(
        self, folder: Path, rounds: int, directory: RunDirectory, key: str, log: Callable[[str], None]
    ) -> None:
        self.folder, self.rounds, self.directory, self.key, self.log = folder, rounds, directory, key, log

    def adopt(self, saved: Saved | None) -> Saved | None:
        """The state to continue from: the run's own if it has done the pilot, else the shared one, with its records, if any."""
        if self.folder.exists():
            with self._alone():
                pass  # what a run has left that was killed while it shared the pilot is gone
        if (saved.round if saved else 0) >= self.rounds or (shared := self._load()) is None:
            return saved
        for path in checkpoint.generations(self.directory.state):
            path.unlink()  # of fewer rounds, with other records
        self.directory.adopt(shared.values.pop("tables"), shared.values.pop("sessions"))
        marks = self.directory.mark_records()
        checkpoint.save(self.directory.state, Saved(self.key, self.rounds, marks, shared.values))
        self.directory.event("adopted", round=self.rounds, pilot=self.folder.name)
        self.log(f"{self.directory.path.name}: continuing from the shared pilot, round {self.rounds}")
        return checkpoint.load(self.directory.state, self.key)[0]

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Share the pilot when its last round is recorded, unless another run has."""
        if not isinstance(pl_module, FederatedModule) or pl_module.diverged is not None:
            return
        if pl_module.state.round == self.rounds:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._alone() as alone:
                if alone and not checkpoint.generations(self.folder):
                    records = {"tables": self.directory.tables(), "sessions": self.directory.sessions()}
                    values = {**pl_module.state.tensors(), **records}
                    checkpoint.save(self.folder, Saved(self.folder.name, self.rounds, {}, values), keep=1)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other run is sharing the pilot; if so, what a killed one has left is removed."""
        lock = Lock(self.folder / ".lock")
        if not lock.acquire():
            yield False
            return
        try:
            remove_dead_parts(self.folder)
            checkpoint.sweep(self.folder)
            yield True
        finally:
            lock.release()

    def _load(self) -> Saved | None:
        try:
            return checkpoint.load(self.folder, self.folder.name)[0]
        except SettingsError:
            for path in checkpoint.generations(self.folder):
                path.unlink()
            self.log(f"{self.folder}: the shared pilot is damaged or belongs to other runs; training it again")
            return None
