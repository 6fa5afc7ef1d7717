"""A search: trials asked of Optuna and played as real runs, exactly as many as wanted, whatever interrupts it."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedtide.core.errors import SettingsError
from fedtide.core.hashing import short_hash
from fedtide.core.randomness import generator
from fedtide.core.source import fingerprint
from fedtide.engine.workers import available_cores
from fedtide.runs.compare import refuse_several_processes
from fedtide.runs.identity import modules, run_key
from fedtide.settings.params import Params
from fedtide.settings.tuning import TuneSettings, Value
from fedtide.tracking.workspace import Workspace
from fedtide.tuning import results
from fedtide.tuning.space import Choice, Dimension, Space
from fedtide.tuning.trial import Outcome, Task, measured
from fedtide.tuning.workers import one_by_one, side_by_side
from fedtide.world.files import timeline_for
from fedtide.world.prepared import load_data

_UNPRUNED_TRIALS = 4  # so many complete trials before one is given up
_UNPRUNED_ROUNDS = 5  # the first so-manieth of the rounds is never pruned


@dataclass(frozen=True)
class TuneResult:
    """What a search found.

    Attributes:
        study: its name. trials: how many ended (complete, pruned or diverged). value, best: metric and settings of the
            complete trial with the best metric, ``None`` and nothing if it was stopped.
        stopped: the signal that stopped it, or ``None``. text: all that in a few lines.
    """

    study: str
    trials: int
    value: float | None
    best: dict[str, Value]
    stopped: int | None
    text: str


def tune(params: Params, workspace: Workspace, folder: Path, log: Callable[[str], None] = lambda _: None) -> TuneResult:
    """Search good settings for the file's algorithm and initialiser on the validation split.

    Every trial is a run with ``tune.seed`` that never looks at the test set. Its value is the mean of ``tune.metric``
    over the rounds that ``tune.over`` names. With ``tune.prune`` it is given up when, after one of its rounds, it is worse
    than the median of the complete trials at that round. A run that diverges counts as given up: Optuna ranks both
    below whatever came to an end, and no value has to be made up.

    With ``tune.cost`` there are two aims, and the search looks for the front of trials that no other one beats in both.
    Then no trial is given up: whether one is worth it cannot be seen from one of the aims.

    Settings, data, code, ranges and aims make the study's name, so changed ones begin another study; the same ones
    go on, also after a kill, until ``tune.trials`` trials have ended. One worker gives the same trials every time, also
    when it was interrupted, since each is drawn with a key of its own; with several, they depend on who was faster.

    Args:
        params: the settings file.
        workspace: where runs and their mirror in MLflow go; they are gathered below a run with the study's name, which gets
            the results too.
        folder: gets the study's journal and, when all trials have ended, what :func:`fedtide.tuning.results.write` makes.
        log: gets one line per trial.

    Raises:
        SettingsError: bad settings or ranges, another process works on this study, or no trial came to an end.
    """
    wanted, space = params.experiment.tune, Space(params)
    refuse_several_processes(space.base)
    data = load_data(space.base)
    timeline = timeline_for(space.base, data)
    if len(timeline.validation) == 0:
        raise SettingsError(f"validation = {space.base.validation:g}: a search needs a share > 0 to measure on")
    if wanted.seed in params.experiment.compare.seeds:
        log(f"tune.seed = {wanted.seed} is among compare.seeds: what is compared should not have been tuned on")
    varied = {dimension.key: dataclasses.asdict(dimension) for dimension in space.dimensions}
    code = sorted({fingerprint(modules(settings)) for settings in space.extremes})
    prunes = wanted.prune and not wanted.cost
    rounds = measured(timeline, wanted.over, space.base.evaluation.every)
    digest = short_hash([run_key(space.base, data), code, varied, wanted.metric, rounds, wanted.cost, prunes])
    name = f"tune-{space.base.label}-{space.base.initialiser_label}-{digest}"
    with _held(folder, name):
        search = _Search(
            space, wanted, dataclasses.replace(workspace, comparison=name), folder / name, timeline.rounds, rounds, log
        )
        if search.workers > 1:
            side_by_side(search, search.workers)
        else:
            one_by_one(search)
        return search.result()


@contextmanager
def _held(folder: Path, name: str) -> Iterator[None]:
    """Hold the study: workers end with the process that started them, so nobody else works on it."""
    lock = FileLock(str(folder / f"{name}.lock"), timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise SettingsError(f"{folder / name}: another process is working on this search") from None
    except OSError as error:
        raise SettingsError(f"{folder}: cannot write the search's records ({error.strerror})") from None
    try:
        yield
    finally:
        lock.release()


class _Search:
    """The study, and the trials that are being played; see :class:`fedtide.tuning.workers.Bench`."""

    def __init__(
        self,
        space: Space,
        wanted: TuneSettings,
        workspace: Workspace,
        path: Path,
        length: int,
        rounds: tuple[int, ...],
        log: Callable[[str], None],
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space, self._wanted, self._workspace, self._path, self._log = space, wanted, workspace, path, log
        self._rounds = rounds
        self._optuna, self._states = optuna, optuna.trial.TrialState
        self._aims: list[str] = [wanted.metric, *([wanted.cost] if wanted.cost else [])]
        up, down = optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE
        self._study = optuna.create_study(
            study_name=path.name,
            storage=_journal(path.with_suffix(".journal")),
            directions=[up if aim == "validation_accuracy" else down for aim in self._aims],
            pruner=optuna.pruners.MedianPruner(_UNPRUNED_TRIALS, n_warmup_steps=length // _UNPRUNED_ROUNDS),
            load_if_exists=True,
        )
        by_key = sorted(space.dimensions, key=lambda dimension: dimension.key)  # their order in the file is nothing
        self._distributions = {dimension.key: _distribution(dimension) for dimension in by_key}
        self._open: dict[str, Any] = {}
        self._remarks: set[str] = set()
        self._stopped: int | None = None
        self._repeat_lost()
        self.workers = min(wanted.workers or available_cores(), wanted.trials - self._ended)

    def _repeat_lost(self) -> None:
        """Queue the trials again that a killed or stopped search was playing; their runs go on where they were."""
        waiting = self._study.get_trials(deepcopy=False, states=(self._states.WAITING,))
        queued = [trial.user_attrs.get("run") for trial in waiting]
        for lost in self._study.get_trials(states=(self._states.RUNNING,)):
            if lost.user_attrs.get("run") not in queued:
                self._study.enqueue_trial(lost.params, user_attrs=lost.user_attrs)
            self._study.tell(lost.number, state=self._states.FAIL)

    @property
    def _ended(self) -> int:
        """Number of trials that count."""
        return len(self._study.get_trials(deepcopy=False, states=(self._states.COMPLETE, self._states.PRUNED)))

    def next(self) -> Task | None:
        """See :meth:`Bench.next`."""
        number = self._ended + len(self._open)
        if self._stopped is not None or number >= self._wanted.trials:
            return None
        seed = int(generator(self._wanted.seed, "search", number).integers(2**31))
        self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)  # keyed: an interruption changes nothing
        trial = self._study.ask(self._distributions)
        name = trial.user_attrs.get("run", f"{self._path.name}-{number:04d}")
        trial.set_user_attr("run", name)
        self._open[name] = trial
        settings = self._space.settings(trial.params)
        if self.workers > 1:  # they share the cores; no result depends on it
            settings = settings.model_copy(update={"engine": settings.engine.model_copy(update={"workers": 1})})
        return Task(name, settings.model_dump(mode="json"), self._workspace, self._wanted.metric, self._rounds)

    def ask(self, name: str, round_: int, value: float) -> bool:
        """See :meth:`Bench.ask`."""
        if self._wanted.cost:  # Optuna takes no reports on one of two aims
            return False
        self._open[name].report(value, round_)
        return self._wanted.prune and bool(self._open[name].should_prune())

    def finish(self, name: str, outcome: Outcome) -> None:
        """See :meth:`Bench.finish`."""
        for line in outcome.remarks:
            if line not in self._remarks:
                self._remarks.add(line)
                self._log(line)
        trial = self._open.pop(name)
        if outcome.state == "interrupted":
            self.stop(outcome.signal or signal.SIGINT)
            return
        trial.set_user_attr("outcome", outcome.state)
        if outcome.values is None:
            self._study.tell(trial, state=self._states.PRUNED)
            came = outcome.state
        else:
            values = outcome.values[: len(self._aims)]
            self._study.tell(trial, values)
            came = results.reached(self._aims, values)
        self._log(f"{self._ended}/{self._wanted.trials}  {results.listed(trial.params)}  {came}")

    def stop(self, number: int) -> None:
        """See :meth:`Bench.stop`."""
        self._stopped = number

    def result(self) -> TuneResult:
        """Write the results of a search that was not stopped, and log what was found."""
        name, ended = self._path.name, self._ended
        if self._stopped is not None:
            text = f"stopped after {ended} of {self._wanted.trials} trials; the same command goes on"
            return TuneResult(name, ended, None, {}, self._stopped, text)
        folder = self._path.parent
        files = results.write(self._study, self._space, self._aims, folder, self._log)
        best = results.best(self._study)
        if best is None:
            raise SettingsError(f"tune.space: none of {ended} trials came to an end, all diverged; lower the ranges")
        if self._workspace.mlruns is not None:
            from fedtide.tracking.search import record

            record(self._workspace, *results.facts(self._study, self._aims), files, self._log)
        text = results.summary(self._study, self._aims, folder)
        return TuneResult(name, ended, float(best.values[0]), best.params, None, text)


def _distribution(dimension: Dimension | Choice) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.limits)
    if dimension.integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _journal(path: Path) -> Any:
    """Optuna's journal, rid of what a killed process may leave behind: its lock, and half a line."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        part = path.with_suffix(".part")
        part.write_bytes(whole)
        part.replace(path)
    return JournalStorage(JournalFileBackend(str(path)))
