"""A search: trials proposed by Optuna and executed as real runs, in the exact number asked for despite interruptions."""

import dataclasses
import signal
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import folder as writable
from fedtide.core.storage.files import remove_dead_parts, short_hash, write_bytes
from fedtide.core.storage.locks import held
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.compare import refuse_bad_imports, with_traceback
from fedtide.runs.display.progress import UNWATCHED, Watch
from fedtide.runs.execution import refuse_several_processes
from fedtide.runs.jobs.cards import share_cards
from fedtide.runs.jobs.executors import executor
from fedtide.runs.jobs.jobs import Failure, run_here
from fedtide.runs.jobs.signals import time_limit
from fedtide.runs.mlflow.upload import upload_elsewhere
from fedtide.runs.open_run import code, run_key
from fedtide.runs.workspace import Workspace
from fedtide.settings.groups.tuning import TuneSettings, Value
from fedtide.settings.params import Params, parse
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import score_of
from fedtide.studies.tuning import results
from fedtide.studies.tuning.samplers import Proposals, pruner, quietly
from fedtide.studies.tuning.space import Space
from fedtide.studies.tuning.trial import Outcome, SeedRun, Task, run_trial, scored_rounds
from fedtide.studies.tuning.until import cut, last_period
from fedtide.training.resources.workers import available_cores
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data


@dataclass(frozen=True)
class TuneResult:
    """The outcome of a search.

    Attributes:
        study: its name. trials: number of ended trials (complete, pruned or diverged). value, best: metric and settings of
            the complete trial with the best metric; ``None`` and empty if the search was stopped.
        stopped: the signal that stopped it, or ``None``. failed: a line for each trial that raised or whose process died.
        text: all of this in a few lines.
    """

    study: str
    trials: int
    value: float | None
    best: dict[str, Value]
    stopped: int | None
    failed: tuple[str, ...]
    text: str


def tune(
    params: Params,
    workspace: Workspace,
    folder: Path,
    watch: Watch = UNWATCHED,
) -> TuneResult:
    """Search for good settings of the file's algorithm and initializer on the validation split.

    Every trial is a run with ``tune.seed``, or one with each of ``tune.seeds``, that is never evaluated on the test set. Its
    value is the mean of ``tune.metric`` over the rounds given by ``tune.over`` and over the seeds. On a calendar runs end with
    period ``tune.until``. With ``tune.prune`` its first run is asked after every round whether ``tune.pruner`` gives the trial
    up. A diverged trial is reported as pruned, which ranks below all complete ones. A trial that raises, or whose process dies
    twice, has failed: the others go on without it, and the same command tries it again. Rules of ``stop`` are ignored.

    With ``tune.cost`` it looks for the Pareto front of two objectives, and no trial is pruned: a pruner sees only one.

    The study's name is a hash of settings, data, code, ranges and objectives: if one of them changes, a new study starts;
    otherwise the search continues, also after a kill, until ``tune.trials`` trials have ended or a grid is complete. With one
    worker the trials are always the same, even after an interruption, since each is sampled with its own key (but for ``cmaes``
    and ``hyperband``, which use the numbers of Optuna's trials, and those differ where a killed one is repeated); with several
    workers they depend on timing.

    Args:
        params: the settings file.
        workspace: for the runs and their mirror in MLflow, below a parent run named after the study, which gets the results.
        folder: for the study's journal and, when all trials have ended, the files of :mod:`fedtide.studies.tuning.results`.
        watch: gets one line per trial, and shows the trials in progress and the best value so far.

    Raises:
        SettingsError: bad settings or ranges, another process works on this study, or no trial is complete and none failed.
    """
    study, machines = prepared(params, folder, watch.log), params.experiment.compare
    options, base = study.options, study.space.base
    # Of many models one is of use.
    where = dataclasses.replace(workspace, comparison=study.path.name, model=False, register=None)
    refuse_bad_imports([base], workspace)
    per_card, places = share_cards([base], machines, where.worlds, watch.log)
    jobs = executor(machines, options.workers, per_card, where.runs, watch.log)
    refusal = f"{study.path}: another process is working on this study"
    with held(writable(folder) / f"{study.path.name}.lock", refusal):  # also for workers, which end with this process
        with jobs as run_jobs, time_limit(options.seconds) as late:
            search = _Search(study, where, watch, places, bool(machines.cluster))
            if machines.cluster or search.workers > 1:
                search.stopped = run_jobs(run_trial, search, options.workers if machines.cluster else search.workers)
            else:
                run_here(run_trial, search)
        return search.result(late.is_set())


@dataclass(frozen=True)
class _Study:
    """What a search is.

    Attributes:
        path: its folder and name. space: what is varied. until: the last period. proposals: of trials.
        pruner: makes Optuna's. rounds: of a run that are scored, by its seed. key: of a run with some settings.
    """

    path: Path
    space: Space
    until: int | None
    options: TuneSettings
    proposals: Proposals
    pruner: Callable[[], Any]
    rounds: Mapping[int, tuple[int, ...]]
    key: Callable[[RunSettings], str]


def planned_runs(params: Params, folder: Path, runs: Path, log: Callable[[str], None]) -> tuple[list[RunSettings], int]:
    """As many settings as a search lacks runs, the ends of its ranges first, and how many have ended; nothing is written."""
    study = prepared(params, folder, log)
    ended, options = len(list(runs.glob(f"{study.path.name}-*/summary.json"))), study.options
    wanted = min(options.trials, study.proposals.most or options.trials) * len(options.run_seeds)
    lacking = [*study.space.extremes, *[study.space.base] * wanted][: max(0, wanted - ended)]
    return [cut(settings, study.until) for settings in lacking], ended


def prepared(params: Params, folder: Path, log: Callable[[str], None]) -> _Study:
    """The study that settings describe; raises as :func:`tune`, and writes nothing."""
    options, space = params.experiment.tune, Space(params)
    proposals = Proposals(options, space.dimensions)
    refuse_several_processes(space.base)
    data = load_data(space.base)
    rounds: dict[int, tuple[int, ...]] = {}
    length = 0
    until, text = last_period(space.base, data, options.until)
    for seed in options.run_seeds:
        timeline = timeline_for(cut(space.settings({}, seed), until), data)
        if len(timeline.validation) == 0:
            raise SettingsError(f"validation = {space.base.validation:g}: a study requires a validation share > 0")
        rounds[seed] = scored_rounds(timeline, options, space.base.evaluation)
        length = length or timeline.rounds
    if text:
        log(text)
    for seed in sorted({*options.run_seeds} & {*params.experiment.compare.seeds}):
        key = f"tune.seeds: {seed}" if options.seeds else f"tune.seed = {seed}"
        log(f"{key} is also in compare.seeds; use a different seed for tuning")
    stops = pruner(options.pruner, length)
    chosen = {"sampler": {"name": options.sampler.name, **proposals.arguments}}
    if options.prunes:
        chosen["pruner"] = {"name": options.pruner.name, **stops.keywords}
    varied = {dimension.key: dataclasses.asdict(dimension) for dimension in space.dimensions}
    sources = sorted({part for settings in space.extremes for part in code(settings)})
    measured = [options.metric, options.cost, options.seed, *rounds.items()]
    digest = short_hash([run_key(cut(space.base, until), data), sources, varied, chosen, measured])
    name = f"tune-{space.base.label}-{space.base.initializer_label}-{digest}"
    return _Study(folder / name, space, until, options, proposals, stops, rounds, partial(run_key, data=data))


class _Search:
    """The study and its open trials; :class:`fedtide.runs.jobs.jobs.Jobs`.

    Attributes:
        stopped: the signal that stopped it, or ``None``. workers: processes at once, as many as there are ``places``, or less.
    """

    def __init__(self, study: _Study, workspace: Workspace, watch: Watch, places: int, away: bool) -> None:
        """``away``: a cluster executes the runs, which are uploaded to MLflow here."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._what, self._options, options = study, study.options, study.options
        self._states = optuna.trial.TrialState
        self._workspace, self._log, self._display = workspace, watch.log, watch.display
        self._away = away
        self._objectives: list[str] = [options.metric, *([options.cost] if options.cost else [])]
        up, down = optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE
        with quietly():
            self._study = optuna.create_study(
                study_name=study.path.name,
                storage=_open_journal(study.path.with_suffix(".journal")),
                directions=[down if score_of(options.metric).lower else up, down][: len(self._objectives)],
                pruner=study.pruner(),
                load_if_exists=True,
            )
            if self._study.metric_names is None:
                self._study.set_metric_names(self._objectives)
        self._open: dict[str, Any] = {}
        self._answers: dict[str, dict[int, bool]] = {}
        self._failures: dict[str, Failure] = {}
        self._remarks: set[str] = set()
        self.stopped: int | None = None
        self._wanted = min(options.trials, study.proposals.most or options.trials)
        if self._wanted < options.trials:
            self._log(
                f"tune.trials = {options.trials}: the grid has {self._wanted} points, so {self._wanted} trials will run"
            )
        self._repeat_lost()
        self.workers = min(options.workers or available_cores(), self._wanted - self._ended, places)
        self._count()

    def _repeat_lost(self) -> None:
        """Queue the failed trials, and the open ones of a killed or stopped search, again; their runs continue.

        A process may die between any two lines of the journal. A trial without a run was still being sampled, and is sampled
        again with its own key. One that was itself queued may not have taken over all of its parameters yet.
        """
        settled = (self._states.WAITING, self._states.COMPLETE, self._states.PRUNED)
        begun = [trial.user_attrs for trial in self._study.get_trials(deepcopy=False, states=settled)]
        known: set[str] = {facts["run"] for facts in begun if "run" in facts}
        for run in known:
            for directory in self._directories(run):
                remove_dead_parts(directory.path)  # of a process that was killed after the end of the run
        for lost in self._study.get_trials(states=(self._states.RUNNING, self._states.FAIL)):
            name, open_ = lost.user_attrs.get("run"), lost.state == self._states.RUNNING
            if name is not None and name not in known and (open_ or lost.user_attrs.get("outcome") == "failed"):
                params = lost.system_attrs.get("fixed_params", lost.params)
                self._study.enqueue_trial(params, user_attrs={"run": name})
                known.add(name)
            if open_:
                self._study.tell(lost.number, state=self._states.FAIL)

    def _names(self, trial: str) -> dict[int, str]:
        """Names of a trial's run directories, by seed."""
        seeds = self._options.run_seeds
        return {seed: trial if len(seeds) == 1 else f"{trial}-{seed}" for seed in seeds}

    def _directories(self, trial: str) -> list[RunDirectory]:
        return [RunDirectory(self._workspace.runs / name) for name in self._names(trial).values()]

    @property
    def _ended(self) -> int:
        return len(self._study.get_trials(deepcopy=False, states=(self._states.COMPLETE, self._states.PRUNED)))

    def next(self) -> Task | None:
        while self.stopped is None and (number := self._begun) < self._wanted:
            trial = self._ask(number)
            name = str(trial.user_attrs["run"])
            try:
                runs = tuple(self._run(trial.params, seed, run) for seed, run in self._names(name).items())
            except SettingsError as error:  # ends of the ranges are checked beforehand, not everything between them
                self._fail(trial, Failure(str(error), refused=True))
                continue
            self._open[name], self._answers[name] = trial, {}
            self._display.begin(_title(trial), [directory.path for directory in self._directories(name)])
            where = dataclasses.replace(self._workspace, mlruns=None) if self._away else self._workspace
            return Task(name, runs, where, self._options.metric)
        return None

    def _run(self, values: Mapping[str, Value], seed: int, name: str) -> SeedRun:
        settings = cut(self._what.space.settings(values, seed), self._what.until)
        key = self._what.key(settings)
        if self.workers > 1 or self._away:  # they share the cores; results do not depend on it
            settings = settings.model_copy(update={"engine": settings.engine.model_copy(update={"workers": 1})})
        return SeedRun(name, settings.model_dump(mode="json"), self._what.rounds[seed], key)

    @property
    def _begun(self) -> int:
        """Number of trials that have ended, failed or are open."""
        return self._ended + len(self._failures) + len(self._open)

    def _ask(self, number: int) -> Any:
        """A trial of the sampler, or one that is repeated; ``number`` gives the former its sampler and name."""
        self._study.sampler = self._what.proposals.sampler(number)
        try:
            with quietly():
                trial = self._study.ask(self._what.proposals.distributions)
        except (AssertionError, TypeError, ValueError) as error:  # Optuna checks some arguments only here
            raise SettingsError(f"tune.sampler = {self._options.sampler.name}: {error}") from None
        trial.set_user_attr("run", trial.user_attrs.get("run", f"{self._study.study_name}-{number:04d}"))
        return trial

    def answer(self, job: Task, question: tuple[int, float]) -> bool:
        """Whether to prune a trial, given a round and the metric after it; a repeated question has the same answer."""
        if self._options.cost:  # Optuna does not prune with two objectives
            return False
        (round_, value), trial, answers = question, self._open[job.name], self._answers[job.name]
        if round_ not in answers:
            trial.report(value, round_)
            answers[round_] = self._options.prunes and bool(trial.should_prune())
        return answers[round_]

    def begin(self, job: Task, place: str) -> None:
        self._log(f"{job.name}: on {place}")

    def repeat(self, job: Task, reason: str) -> None:
        self._log(f"{job.name}: {reason}; resuming from its checkpoint")

    def is_interrupted(self, result: Outcome) -> bool:
        return result.state == "interrupted"

    def finish(self, job: Task, end: Outcome | Failure) -> None:
        trial = self._open.pop(job.name)
        self._display.end(_title(trial))
        if self._away:
            for member in job.runs:
                upload_elsewhere(self._workspace, parse(RunSettings, member.settings), member.name, self._log)
        self._settle(trial, end)
        self._count()

    def _count(self) -> None:
        best = results.best(self._study)
        self._display.count(self._ended, self._wanted, "" if best is None else f"best {best.values[0]:.4g}")

    def _settle(self, trial: Any, end: Outcome | Failure) -> None:
        if isinstance(end, Failure):
            self._fail(trial, end)
            return
        for line in end.remarks:
            if line not in self._remarks:
                self._remarks.add(line)
                self._log(line)
        if end.state == "interrupted":
            self.stopped = end.signal or signal.SIGINT
            return
        trial.set_user_attr("outcome", end.state)
        if end.values is None:
            self._study.tell(trial, state=self._states.PRUNED)
            text = end.state
        else:
            values = end.values[: len(self._objectives)]
            text = results.values_line(self._objectives, values)
            if len(end.seeds) > 1:
                trial.set_user_attr("seeds", dict(zip(map(str, self._options.run_seeds), end.seeds, strict=True)))
                text += f" (standard deviation over {len(end.seeds)} seeds {statistics.stdev(end.seeds):.4f})"
            self._study.tell(trial, values)
        self._log(f"{self._ended}/{self._wanted}  {results.settings_line(trial.params)}  {text}")

    def _fail(self, trial: Any, failure: Failure) -> None:
        name = str(trial.user_attrs["run"])
        trial.set_user_attr("outcome", "failed")
        self._study.tell(trial, state=self._states.FAIL)
        directories = self._directories(name)
        failed = next((directory for directory in directories if directory.error.is_file()), directories[0])
        failure = with_traceback(failure, failed, self._log)
        self._failures[name] = failure
        self._log(f"{name}  {results.settings_line(trial.params)}  FAILED: {failure.message}")

    def result(self, late: bool) -> TuneResult:
        """The outcome; results are written unless a signal stopped the search, or nothing was complete when it was ``late``."""
        name, folder, ended = self._what.path.name, self._what.path.parent, self._ended
        failed = tuple(f"{run}: {failure.message}" for run, failure in self._failures.items())
        stop = f"stopped after {ended} of {self._wanted} trials; re-run the same command to resume"
        early = self.stopped is not None and ended + len(failed) < self._wanted
        if early and not (late and results.best(self._study)):
            return TuneResult(name, ended, None, {}, None if late else self.stopped, failed, stop)
        files = results.write(self._study, self._what.space, self._objectives, folder, self._log)
        if failed and not ended and all(failure.refused for failure in self._failures.values()):
            raise SettingsError(next(iter(self._failures.values())).message)
        best = results.best(self._study)
        if best is None and not failed:
            raise SettingsError(results.why_none(self._study, self._options.metric))
        if best is None:
            return TuneResult(name, ended, None, {}, None, failed, f"none of {ended} finished trials is complete")
        if self._workspace.mlruns is not None:
            from fedtide.runs.mlflow.results import record

            words, numbers = results.facts(self._study, self._objectives)
            record(self._workspace, words, numbers, dict.fromkeys(files, ""), self._log)
        text = results.summary(self._study, self._objectives, folder)
        text += f"\ntune.seconds = {self._options.seconds:g}: {stop}" if early else ""
        return TuneResult(name, ended, float(best.values[0]), best.params, None, failed, text)


def _open_journal(path: Path) -> Any:
    """Optuna's journal, without the stale lock and the torn last line that a killed process may leave.

    Raises:
        SettingsError: a line is damaged, or lines do not fit together.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    for lock in path.parent.glob(f"{path.name}.lock*"):  # renamed before it is removed
        lock.unlink(missing_ok=True)
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        write_bytes(path, whole)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise SettingsError(
            f"{path}: the study journal is damaged ({type(error).__name__}); delete this file to repeat the study; "
            "finished runs are reused"
        ) from None


def _title(trial: Any) -> str:
    return f"trial {int(trial.user_attrs['run'].rpartition('-')[2])} · {results.settings_line(trial.params)}"
