"""One trial: real runs on the validation split, one per seed, that may be pruned."""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedtide.core import lightning as L
from fedtide.core.errors import SettingsError
from fedtide.federation.module import FederatedModule
from fedtide.records.measures.drifts import starts
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.display.progress import Watch
from fedtide.runs.execution import execute
from fedtide.runs.jobs.jobs import Ask
from fedtide.runs.workspace import Workspace
from fedtide.settings.groups.evaluation import EvaluationSettings
from fedtide.settings.groups.tuning import TuneSettings
from fedtide.settings.params import parse
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import score_of
from fedtide.world.timeline import Timeline

_DIGITS = 9  # of a cost: equal costs must not differ by rounding, or one would dominate the other

ShouldPrune = Callable[[int, float], bool]
"""Given a round and the metric after it: whether to prune the trial."""


@dataclass(frozen=True)
class SeedRun:
    """One run of a trial, that can be sent to another process: name of its directory, JSON-able settings, and run key.

    ``rounds`` are the numbers (from 1) of those that its metric is averaged over.
    """

    name: str
    settings: dict[str, Any]
    rounds: tuple[int, ...]
    key: str


@dataclass(frozen=True)
class Task:
    """What to run in a trial: one run per seed, their workspace, and the metric, a column of the history."""

    name: str
    runs: tuple[SeedRun, ...]
    workspace: Workspace
    metric: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial, or of one of its runs.

    Attributes:
        state: complete, pruned, diverged, undetermined (without a value of the metric in any of the rounds) or interrupted.
        values: of a complete trial, means over its seeds: metric (see :func:`score`) and mean communication cost kappa.
        signal: that interrupted it. remarks: log lines of the runs about their tracking. seeds: the metric of each run of a
            complete trial.
    """

    state: str
    values: tuple[float, float] | None
    signal: int | None
    remarks: tuple[str, ...]
    seeds: tuple[float, ...] = ()


class Pruner(L.Callback):
    """Stops the run as soon as, after an evaluated round, it should be pruned; rounds in its directory are considered first.

    Attributes:
        pruned: whether the run was pruned; read by :func:`fedtide.runs.execution.execute`.
    """

    def __init__(self, directory: RunDirectory, metric: str, should_prune: ShouldPrune) -> None:
        self.directory, self.metric, self.should_prune = directory, metric, should_prune
        self.pruned = False
        self._last = 0

    def catch_up(self) -> None:
        for row in self.directory.history():
            self._consider(row)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.catch_up()
        trainer.should_stop = self.pruned

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if isinstance(pl_module, FederatedModule) and pl_module.record is not None:
            self._consider(pl_module.record.row)
            trainer.should_stop |= self.pruned

    def _consider(self, row: Mapping[str, Any]) -> None:
        round_, value = int(row["round"]), measured(row, self.metric)
        if round_ > self._last and value is not None and math.isfinite(value):
            self._last = round_
            self.pruned |= self.should_prune(round_, value)


def run_trial(task: Task, ask: Ask) -> Outcome:
    """Run a trial, seed by seed, until one of its runs is not complete.

    Finished runs are read from their records, an interrupted one continues. Waits for a process of an interrupted search that
    still works on it. Only the first run may be pruned, before any time is spent on other seeds; it asks with a round and the
    metric after it.
    """
    outcomes: list[Outcome] = []
    for place, member in enumerate(task.runs):
        outcomes.append(_run_seed(task, member, ask if place == 0 else None))
        if outcomes[-1].values is None:
            break
    remarks = tuple(line for outcome in outcomes for line in outcome.remarks)
    last, values = outcomes[-1], [outcome.values for outcome in outcomes if outcome.values]
    if last.values is None:
        return replace(last, remarks=remarks)
    metrics, costs = zip(*values, strict=True)
    means = statistics.fmean(metrics), round(statistics.fmean(costs), _DIGITS)
    return Outcome(last.state, means, last.signal, remarks, metrics)


def _run_seed(task: Task, member: SeedRun, ask: Ask | None) -> Outcome:
    def should_prune(round_: int, value: float) -> bool:
        return ask is not None and bool(ask((round_, value)))

    settings: RunSettings = parse(RunSettings, member.settings)
    directory = RunDirectory(task.workspace.runs / member.name)
    pruner = Pruner(directory, task.metric, should_prune)
    remarks: list[str] = []
    watch = Watch(remarks.append, callbacks=[pruner])
    summary = execute(settings, task.workspace, name=member.name, watch=watch, expected=member.key)
    pruner.catch_up()  # a finished run was not executed again
    state, history = str(summary["state"]), directory.history()
    value = score(history, task.metric, member.rounds) if state == "complete" else None
    if state == "complete" and value is None:
        found = any(measured(row, task.metric) is not None for row in history if int(row["round"]) in member.rounds)
        state = "diverged" if found else "undetermined"
    tracking = tuple(line for line in remarks if line.startswith("MLflow"))
    if value is None:
        return Outcome(state, None, summary.get("signal"), tracking)
    cost = round(statistics.fmean(float(row["kappa"]) for row in history), _DIGITS)
    return Outcome(state, (value, cost), summary.get("signal"), tracking)


_WINDOW = 10  # rounds after a session change or a drift
_ROUNDS = {
    "periods": ("the last of a period", "sessions are not periods of the data's time; use scenario calendar"),
    "drifts": ("the first ten of a drift", "there is no concept drift; use end, or set drift"),
    "changes": ("the first ten of a session", "there is no session change after the pilot; use end"),
    "end": ("the last tenth", "there are no rounds"),
}
"""The rounds that ``tune.over`` may name, in the order in which ``auto`` looks for them, and why there may be none."""


def evaluated_rounds(timeline: Timeline, over: str, every: int, ahead: bool = False) -> tuple[int, ...]:
    """Numbers (from 1) of the rounds given by ``tune.over``, when every ``every``-th round and the last are evaluated.

    With ``ahead``, only rounds with a next period to evaluate on: the mean over ``periods`` is then the mean over the next
    periods that reports give.

    Raises:
        SettingsError: there are no changes, drifts or periods to evaluate, no next period, or none of the rounds is evaluated.
    """
    if ahead and not timeline.looks_ahead:
        why = " after tune.until" if timeline.has_periods else "; use scenario calendar with next_period: 1"
        raise SettingsError(f"tune.metric: there is no next period to evaluate on{why}")
    last = timeline.rounds

    def counts(round_: int) -> bool:
        return not ahead or timeline.evaluated_ahead_at(round_ - 1) is not None

    def evaluated(round_: int) -> bool:
        return round_ % every == 0 or round_ == last or timeline.looks_ahead_at(round_ - 1)

    spans = [timeline.session_span(first) for first in timeline.session_starts]
    drifts = starts([len(timeline.changed_at(round_)) for round_ in range(last)])
    tail = [round_ for round_ in range(1, last + 1) if counts(round_)]
    found = {
        "periods": [max(filter(evaluated, range(first + 1, first + length + 1)), default=0) for first, length in spans],
        "drifts": [start + round_ for start in drifts for round_ in range(1, _WINDOW + 1)],
        "changes": [
            spans[session - 1][0] + round_
            for session in timeline.transition_sessions
            for round_ in range(1, min(_WINDOW, spans[session - 1][1]) + 1)
        ],
        "end": tail[-max(1, last // 10) :],
    }
    if not timeline.has_periods:
        found["periods"] = []
    which = next(name for name in _ROUNDS if found[name]) if over == "auto" else over
    if not found[which]:
        raise SettingsError(f"tune.over = {over!r}: {_ROUNDS[which][1]}")
    rounds = tuple(sorted({round_ for round_ in found[which] if 1 <= round_ <= last and counts(round_)}))
    if not any(map(evaluated, rounds)):
        raise SettingsError(
            f"evaluation.every = {every}: no round of tune.over = {over!r}, {_ROUNDS[which][0]}, is evaluated"
        )
    return rounds


def scored_rounds(timeline: Timeline, options: TuneSettings, evaluation: EvaluationSettings) -> tuple[int, ...]:
    """The rounds that ``tune.metric`` is averaged over, see :func:`evaluated_rounds`."""
    scored = score_of(options.metric)
    every = evaluation.clients_every if scored.of_clients else evaluation.every
    return evaluated_rounds(timeline, options.over, every, ahead=scored.ahead)


def measured(row: Mapping[str, Any], metric: str) -> float | None:
    """A metric after a round, None where not evaluated; where clients have no models of their own, that of the reported one.

    Of measures of erased clients the absolute value, so that those of several rounds and seeds do not cancel.
    """
    cell = row[metric] if metric in row else row.get(metric.replace("served_", "client_", 1))
    if cell in (None, ""):
        return None
    return abs(float(cell)) if score_of(metric).of_erased else float(cell)


def score(history: Iterable[Mapping[str, str]], metric: str, rounds: Collection[int]) -> float | None:
    """Mean of a metric over some rounds, as far as they are evaluated; ``None`` if it is not finite or none was."""
    cells = [measured(row, metric) for row in history if int(row["round"]) in rounds]
    values = [cell for cell in cells if cell is not None]
    mean = sum(values) / len(values) if values else math.nan
    return mean if math.isfinite(mean) else None
