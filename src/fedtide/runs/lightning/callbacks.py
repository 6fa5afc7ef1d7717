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
from fedtide.runs.jobs.signals import StopSignals
from fedtide.settings.scores import main_score

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
    """Calls ``update`` with one line per round: round, session, main score, loss, clients, bytes, time left."""

    def __init__(self, update: Callable[[str], None]) -> None:
        self.update = update
        self._began = 0.0
        self._first = 0
        self._score: Any = None

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._began, self._first = time.perf_counter(), pl_module.state.round

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        module: FederatedModule = pl_module
        if not trainer.is_global_zero or module.record is None:
            return
        row, rounds = module.record.row, module.timeline.rounds
        done = module.state.round - self._first
        left = (time.perf_counter() - self._began) / max(done, 1) * (rounds - module.state.round)
        split, main = module.settings.evaluation.splits[0], main_score(module.settings.task)
        found = row.get(f"{split}_{main.name}")
        self._score = self._score if found is None else found
        score = "" if self._score is None else f"  {split} {main.words} {main.shown(self._score)}"
        loss = "" if row["train_loss"] is None else f"loss {row['train_loss']:.4f}  "
        sent = (row["bytes_up"] or 0) + (row["bytes_down"] or 0)
        sessions = max(module.timeline.sessions, module.parts.timeline.sessions)  # alarms may have begun more
        self.update(
            f"round {row['round']}/{rounds}  session {row['session']}/{sessions}{score}  "
            f"{loss}clients {row['selected']}/{row['present']}  "
            f"{sent / 1e6:,.1f} MB  {left:.0f} s left"
        )
