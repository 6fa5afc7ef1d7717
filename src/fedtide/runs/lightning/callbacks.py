"""Callbacks of a run: records, saved state, signals, a line of progress."""

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lightning.pytorch.utilities.exceptions import SIGTERMException

from fedtide.core import lightning as L
from fedtide.federation.module import FederatedModule
from fedtide.federation.saving import checkpoint
from fedtide.records.run_directory import SESSION, RunDirectory
from fedtide.runs.display.progress import Follower
from fedtide.runs.jobs.signals import StopSignals
from fedtide.settings.run import RunSettings
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


class StopRules(L.Callback):
    """Ends the fit after the first evaluated round in which a rule of ``stop`` holds; ``stopped`` says in words which.

    What it knows of earlier rounds comes from ``rows`` of their history, so that a resumed run ends with the same round.
    """

    def __init__(self, settings: RunSettings, rows: Sequence[Mapping[str, Any]]) -> None:
        self._settings, self._best, self._best_round, self._seconds = settings, -math.inf, 0, 0.0
        self.stopped: str | None = None
        for row in rows:
            self._consider(row)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if pl_module.record is not None and trainer.is_global_zero:
            self._consider(pl_module.record.row)
        # The first process alone evaluates.
        if trainer.strategy.reduce_boolean_decision(self.stopped is not None, all=False):
            trainer.should_stop = True

    def _consider(self, row: Mapping[str, Any]) -> None:
        """Take a round into account; cells of earlier processes are text."""
        cells = {name: float(cell) for name, cell in row.items() if cell not in (None, "")}
        self._seconds = cells.get("seconds_simulated", self._seconds + cells.get("latency", 0))
        rules, evaluation, score = self._settings.stop, self._settings.evaluation, main_score(self._settings.task)
        name, round_ = f"{evaluation.splits[0]}_{score.name}", int(cells["round"])
        value = cells.get(name, cells.get(f"{evaluation.splits[0]}_{score.of_served.name}"))
        if value is None and round_ % evaluation.every:
            return
        better = -math.inf if value is None else score.sign * value
        if better > self._best:
            self._best, self._best_round = better, round_
        idle, spent = round_ - self._best_round, cells["bytes_up"] + cells["bytes_down"]
        target = None if rules.target is None else score.sign * rules.target
        for rule, limit, reached, words in (
            ("target", target, better, f"{name} = {value}"),
            ("patience", rules.patience, idle, f"no better {name} in {idle} rounds"),
            ("bytes", rules.bytes, spent, f"{spent:,.0f} bytes of traffic"),
            ("simulated_seconds", rules.simulated_seconds, self._seconds, f"{self._seconds:,.6g} simulated seconds"),
        ):
            if limit is not None and reached >= limit and self.stopped is None:
                self.stopped = f"{words} (stop.{rule} = {getattr(rules, rule):g})"


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
        self._first: int | None = None

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        module: FederatedModule = pl_module
        if trainer.is_global_zero:
            done, rounds, score = module.state.round, module.timeline.rounds, self._follower.position().score
            line = f"round {done}/{rounds}  {score}"
            if self._first is None:  # the first round takes longer
                self._began, self._first = time.perf_counter(), done
            else:
                left = (time.perf_counter() - self._began) / (done - self._first) * (rounds - done)
                line += f"  {left:.0f} s left"
            self.update(line)
