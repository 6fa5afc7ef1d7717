"""One trial: a real run on the validation split that may be given up on the way."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import lightning as L

from fedtide.core.errors import SettingsError
from fedtide.federation.module import FederatedModule
from fedtide.runs.run import run
from fedtide.settings.parse import parse
from fedtide.settings.run import RunSettings
from fedtide.tracking.run_directory import RunDirectory
from fedtide.tracking.workspace import Workspace
from fedtide.world.timeline import Timeline

_DIGITS = 9  # of a cost: what costs the same in theory must not differ by rounding, or the front would prefer it

Ask = Callable[[int, float], bool]
"""Takes a round and the metric after it, says whether to give the trial up."""


@dataclass(frozen=True)
class Task:
    """What a trial is to do. Settings are plain, so that another process can be asked.

    Attributes:
        name: of the run directory. settings: of the run, JSON-able. workspace: where its records go. metric: a column of
            the history. rounds: over which it is averaged, from 1.
    """

    name: str
    settings: dict[str, Any]
    workspace: Workspace
    metric: str
    rounds: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    Attributes:
        state: complete, pruned, diverged or interrupted. values: metric (see :func:`score`) and mean communication cost
            kappa of a complete trial. signal: that interrupted it. remarks: what the run had to log about its tracking.
    """

    state: str
    values: tuple[float, float] | None
    signal: int | None
    remarks: tuple[str, ...]


class Pruner(L.Callback):
    """Asks after every evaluated round whether the run is worth going on with.

    Args:
        directory: of the run: rounds that an earlier process has played are asked about first.
        metric: column of the history.
        ask: see :data:`Ask`.

    Attributes:
        pruned: whether the run was given up; :func:`fedtide.runs.run.execute` looks at it.
    """

    def __init__(self, directory: RunDirectory, metric: str, ask: Ask) -> None:
        self.directory, self.metric, self.ask = directory, metric, ask
        self.pruned = False
        self._asked = 0

    def catch_up(self) -> None:
        """Ask about the recorded rounds."""
        for row in self.directory.history():
            self._consider(row)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Catch up with a run that goes on."""
        self.catch_up()
        trainer.should_stop = self.pruned

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Ask about the round that was just played."""
        if isinstance(pl_module, FederatedModule) and pl_module.record is not None:
            self._consider(pl_module.record.row)
            trainer.should_stop |= self.pruned

    def _consider(self, row: Mapping[str, Any]) -> None:
        round_, cell = int(row["round"]), row.get(self.metric)
        if round_ > self._asked and cell not in (None, "") and math.isfinite(float(cell)):
            self._asked = round_
            self.pruned |= self.ask(round_, float(cell))


def play(task: Task, ask: Ask) -> Outcome:
    """Play a trial to its end, or return what is recorded of a finished one, or go on with a half-done one.

    A process of an interrupted search that still works on it is waited for.
    """
    settings: RunSettings = parse(RunSettings, task.settings)
    directory = RunDirectory(task.workspace.runs / task.name)
    pruner = Pruner(directory, task.metric, ask)
    remarks: list[str] = []
    summary = run(settings, task.workspace, name=task.name, log=remarks.append, wait=True, callbacks=[pruner])
    pruner.catch_up()  # a finished run was not played again
    state, history = summary["state"], directory.history()
    value = score(history, task.metric, task.rounds) if state == "complete" else None
    if state == "complete" and value is None:
        state = "diverged"
    tracking = tuple(line for line in remarks if line.startswith("MLflow"))
    return Outcome(state, None if value is None else (value, _cost(history)), summary.get("signal"), tracking)


_WINDOW = 10
"""Rounds after a session change."""


def last_tenth(timeline: Timeline) -> tuple[int, ...]:
    """Numbers of the last tenth of the rounds, at least the last one."""
    return tuple(range(timeline.rounds - max(1, timeline.rounds // 10) + 1, timeline.rounds + 1))


def after_changes(timeline: Timeline) -> tuple[int, ...]:
    """Numbers of the first ten rounds of every session that counts in reports.

    Raises:
        SettingsError: there is no such session.
    """
    if not (counted := timeline.counted):
        raise SettingsError("tune.over = 'changes': no session comes after another one and the pilot; use end")
    starts = timeline.session_starts
    spans = [timeline.session_span(starts[number - 1]) for number in counted]
    return tuple(first + round_ for first, length in spans for round_ in range(1, min(_WINDOW, length) + 1))


def measured(timeline: Timeline, over: str, every: int) -> tuple[int, ...]:
    """Numbers of the rounds that ``tune.over`` names, when every so many rounds and the last one are evaluated.

    Raises:
        SettingsError: changes are asked for and there are none, or none of the rounds is evaluated.
    """
    changes = over == "changes" or (over == "auto" and bool(timeline.counted))
    rounds = after_changes(timeline) if changes else last_tenth(timeline)
    if not any(round_ % every == 0 or round_ == timeline.rounds for round_ in rounds):
        raise SettingsError(
            f"evaluation.every = {every}: of the rounds that tune.over = {over!r} looks at, the first ten of a session, none "
            "is evaluated"
        )
    return rounds


def score(history: Iterable[Mapping[str, str]], metric: str, rounds: Collection[int]) -> float | None:
    """Mean of a metric over the evaluated ones of some rounds.

    Returns:
        The mean; ``None`` if it is not finite or none of them was evaluated.
    """
    values = [float(row[metric]) for row in history if int(row["round"]) in rounds and row[metric]]
    mean = sum(values) / len(values) if values else math.nan
    return mean if math.isfinite(mean) else None


def _cost(history: Iterable[Mapping[str, str]]) -> float:
    """Mean kappa of the rounds."""
    return round(statistics.fmean(float(row["kappa"]) for row in history), _DIGITS)
