"""A search: trials proposed by Optuna and executed as real runs, in the exact number asked for despite interruptions."""

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
from fedtide.core.files import write_bytes
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
from fedtide.tuning.trial import Outcome, Task, evaluated_rounds
from fedtide.tuning.workers import run_in_parallel, run_sequentially
from fedtide.world.files import timeline_for
from fedtide.world.prepared import load_data

_UNPRUNED_TRIALS = 4  # complete trials before any is pruned
_UNPRUNED_ROUNDS = 5  # no pruning in the first fifth of the rounds


@dataclass(frozen=True)
class TuneResult:
    """The outcome of a search.

    Attributes:
        study: its name. trials: number of ended trials (complete, pruned or diverged). value, best: metric and settings of
            the complete trial with the best metric; ``None`` and empty if the search was stopped.
        stopped: the signal that stopped it, or ``None``. text: all of this in a few lines.
    """

    study: str
    trials: int
    value: float | None
    best: dict[str, Value]
    stopped: int | None
    text: str


def tune(params: Params, workspace: Workspace, folder: Path, log: Callable[[str], None] = lambda _: None) -> TuneResult:
    """Search for good settings of the file's algorithm and initialiser on the validation split.

    Every trial is a run with ``tune.seed`` that is never evaluated on the test set. Its value is the mean of ``tune.metric``
    over the rounds given by ``tune.over``. With ``tune.prune`` it is pruned when, after one of its rounds, it is worse than
    the median of the complete trials at that round. A diverged run is reported as pruned: Optuna ranks such trials below all
    complete ones, so no value has to be invented.

    With ``tune.cost`` there are two objectives, and the search looks for their Pareto front. No trial is pruned then, since
    one objective alone cannot tell whether a trial is worth finishing.

    The study's name is a hash of settings, data, code, ranges and objectives: if one of them changes, a new study starts;
    otherwise the search continues, also after a kill, until ``tune.trials`` trials have ended. With one worker the trials
    are always the same, even after an interruption, since each is sampled with its own key; with several workers they
    depend on timing.

    Args:
        params: the settings file.
        workspace: for the runs and their mirror in MLflow, below a parent run with the study's name that also gets the
            results.
        folder: for the study's journal and, when all trials have ended, the files of :func:`fedtide.tuning.results.write`.
        log: gets one line per trial.

    Raises:
        SettingsError: bad settings or ranges, another process works on this study, or no trial is complete.
    """
    options, space = params.experiment.tune, Space(params)
    refuse_several_processes(space.base)
    data = load_data(space.base)
    timeline = timeline_for(space.base, data)
    if len(timeline.validation) == 0:
        raise SettingsError(f"validation = {space.base.validation:g}: a search needs a share > 0 to measure on")
    if options.seed in params.experiment.compare.seeds:
        log(
            f"tune.seed = {options.seed} is among compare.seeds: a seed for tuning should not be used in the comparison"
        )
    varied = {dimension.key: dataclasses.asdict(dimension) for dimension in space.dimensions}
    code = sorted({fingerprint(modules(settings)) for settings in space.extremes})
    prunes = options.prune and not options.cost
    rounds = evaluated_rounds(timeline, options.over, space.base.evaluation.every)
    digest = short_hash([run_key(space.base, data), code, varied, options.metric, rounds, options.cost, prunes])
    name = f"tune-{space.base.label}-{space.base.initialiser_label}-{digest}"
    with _held(folder, name):
        search = _Search(
            space, options, dataclasses.replace(workspace, comparison=name), folder / name, timeline.rounds, rounds, log
        )
        if search.workers > 1:
            run_in_parallel(search, search.workers)
        else:
            run_sequentially(search)
        return search.result()


@contextmanager
def _held(folder: Path, name: str) -> Iterator[None]:
    """Lock the study. Workers end with the process that started them, so the lock covers them too."""
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
    """The study and its open trials; a :class:`fedtide.tuning.workers.TrialQueue`."""

    def __init__(
        self,
        space: Space,
        options: TuneSettings,
        workspace: Workspace,
        path: Path,
        length: int,
        rounds: tuple[int, ...],
        log: Callable[[str], None],
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space, self._options, self._workspace, self._path, self._log = space, options, workspace, path, log
        self._rounds = rounds
        self._optuna, self._states = optuna, optuna.trial.TrialState
        self._objectives: list[str] = [options.metric, *([options.cost] if options.cost else [])]
        up, down = optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE
        self._study = optuna.create_study(
            study_name=path.name,
            storage=_journal(path.with_suffix(".journal")),
            directions=[up if name == "validation_accuracy" else down for name in self._objectives],
            pruner=optuna.pruners.MedianPruner(_UNPRUNED_TRIALS, n_warmup_steps=length // _UNPRUNED_ROUNDS),
            load_if_exists=True,
        )
        by_key = sorted(
            space.dimensions, key=lambda dimension: dimension.key
        )  # their order in the file must not matter
        self._distributions = {dimension.key: _distribution(dimension) for dimension in by_key}
        self._open: dict[str, Any] = {}
        self._remarks: set[str] = set()
        self._stopped: int | None = None
        self._repeat_lost()
        self.workers = min(options.workers or available_cores(), options.trials - self._ended)

    def _repeat_lost(self) -> None:
        """Queue the open trials of a killed or stopped search again; their runs continue where they stopped."""
        waiting = self._study.get_trials(deepcopy=False, states=(self._states.WAITING,))
        queued = [trial.user_attrs.get("run") for trial in waiting]
        for lost in self._study.get_trials(states=(self._states.RUNNING,)):
            if lost.user_attrs.get("run") not in queued:
                self._study.enqueue_trial(lost.params, user_attrs=lost.user_attrs)
            self._study.tell(lost.number, state=self._states.FAIL)

    @property
    def _ended(self) -> int:
        """Number of ended trials."""
        return len(self._study.get_trials(deepcopy=False, states=(self._states.COMPLETE, self._states.PRUNED)))

    def next(self) -> Task | None:
        """See :meth:`TrialQueue.next`."""
        number = self._ended + len(self._open)
        if self._stopped is not None or number >= self._options.trials:
            return None
        seed = int(generator(self._options.seed, "search", number).integers(2**31))
        self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)  # keyed, so that interruptions have no effect
        trial = self._study.ask(self._distributions)
        name = trial.user_attrs.get("run", f"{self._path.name}-{number:04d}")
        trial.set_user_attr("run", name)
        self._open[name] = trial
        settings = self._space.settings(trial.params)
        if self.workers > 1:  # they share the cores; results do not depend on it
            settings = settings.model_copy(update={"engine": settings.engine.model_copy(update={"workers": 1})})
        return Task(name, settings.model_dump(mode="json"), self._workspace, self._options.metric, self._rounds)

    def should_prune(self, name: str, round_: int, value: float) -> bool:
        """See :meth:`TrialQueue.should_prune`."""
        if self._options.cost:  # Optuna does not prune with two objectives
            return False
        self._open[name].report(value, round_)
        return self._options.prune and bool(self._open[name].should_prune())

    def finish(self, name: str, outcome: Outcome) -> None:
        """See :meth:`TrialQueue.finish`."""
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
            text = outcome.state
        else:
            values = outcome.values[: len(self._objectives)]
            self._study.tell(trial, values)
            text = results.values_line(self._objectives, values)
        self._log(f"{self._ended}/{self._options.trials}  {results.settings_line(trial.params)}  {text}")

    def stop(self, number: int) -> None:
        """See :meth:`TrialQueue.stop`."""
        self._stopped = number

    def result(self) -> TuneResult:
        """The outcome; results are written unless the search was stopped."""
        name, ended = self._path.name, self._ended
        if self._stopped is not None:
            text = f"stopped after {ended} of {self._options.trials} trials; the same command continues"
            return TuneResult(name, ended, None, {}, self._stopped, text)
        folder = self._path.parent
        files = results.write(self._study, self._space, self._objectives, folder, self._log)
        best = results.best(self._study)
        if best is None:
            raise SettingsError(f"tune.space: none of {ended} trials is complete, all diverged; lower the ranges")
        if self._workspace.mlruns is not None:
            from fedtide.tracking.search import record

            record(self._workspace, *results.facts(self._study, self._objectives), files, self._log)
        text = results.summary(self._study, self._objectives, folder)
        return TuneResult(name, ended, float(best.values[0]), best.params, None, text)


def _distribution(dimension: Dimension | Choice) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.limits)
    if dimension.integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _journal(path: Path) -> Any:
    """Optuna's journal, without the stale lock and torn last line that a killed process may leave."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        write_bytes(path, whole)
    return JournalStorage(JournalFileBackend(str(path)))
