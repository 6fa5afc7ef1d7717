"""Callbacks of a run: records, saved state, signals, a line of progress."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import lightning as L
from lightning.pytorch.utilities.exceptions import SIGTERMException

from fedtide.federation.module import FederatedModule
from fedtide.federation.saving import checkpoint
from fedtide.records.run_directory import SESSION, RunDirectory
from fedtide.runs.display.progress import Follower
from fedtide.runs.jobs.signals import StopSignals

_SECONDS = 2.0  # between two batches of rounds, which may last milliseconds


class Recorder(L.Callback):
    """Appends each round to the run directory; saves the state of run ``key`` every ``every`` rounds and when stopping.

    ``more`` gives further entries of the state.
    """

    def __init__(
        self,
        directory: RunDirectory,
        key: str,
        every: int,
        more: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.directory, self.key, self.every, self.more = directory, key, every, more
        self._states = checkpoint.Generations(directory.state)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        module: FederatedModule = pl_module
        if not trainer.is_global_zero or module.record is None:
            return
        record, done = module.record, module.state.round
        if record.session is not None:
            self.directory.event(SESSION, round=record.row["round"], **record.session)
        for facts in record.events:
            self.directory.event(**facts)
        details = record.client_scores, record.session_scores, record.owner_scores
        self.directory.append(record.row, record.per_class, record.clients, *details)
        last = done == module.parts.timeline.rounds
        if module.diverged is None and (last or trainer.should_stop or done % self.every == 0):
            records = self.directory.mark_records()  # on the disk before the state that counts on them
            self._states.save(checkpoint.Saved(self.key, done, records, module.state.tensors() | self.more()))


class GracefulStop(StopSignals, L.Callback):
    """Ctrl-C and SIGTERM end the fit after the round in progress; a second Ctrl-C ends the process at once."""

    @contextmanager
    def sigterm_noted(self) -> Iterator[None]:
        """Note a SIGTERM before round 1 as received: Lightning makes an exception of it, and would exit with status 0."""
        try:
            yield
        except SIGTERMException:
            self.received = signal.SIGTERM

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take SIGTERM back from Lightning, which would exit with status 0 and contact other processes first."""
        self.restore()

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Tell Lightning to stop; the recorder then saves the state."""
        if trainer.strategy.reduce_boolean_decision(self.received is not None, all=False):
            trainer.should_stop = True


class RoundBatches(L.Callback):
    """Hands the recorded rounds to :meth:`send`, all that are new in one call."""

    def __init__(self) -> None:
        self._rows: list[Mapping[str, Any]] = []
        self._sent = 0.0

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if pl_module.record is not None:
            self._rows.append(pl_module.record.row)
            if time.monotonic() - self._sent > _SECONDS:
                self.flush()

    def flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self.send(rows)
        self._sent = time.monotonic()

    def send(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows of the history; cells of earlier processes are text."""
        raise NotImplementedError


class Progress(L.Callback):
    """Calls ``update`` with a line after each round: how far a run directory is, and the time left."""

    def __init__(self, update: Callable[[str], None], directory: RunDirectory) -> None:
        self.update, self._follower = update, Follower([directory.path])

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._began, self._first = time.perf_counter(), pl_module.state.round

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        module: FederatedModule = pl_module
        if trainer.is_global_zero:
            done, rounds, score = module.state.round, module.timeline.rounds, self._follower.position().score
            left = (time.perf_counter() - self._began) / max(done - self._first, 1) * (rounds - done)
            self.update(f"round {done}/{rounds}  {score}  {left:.0f} s left")
