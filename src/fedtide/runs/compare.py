"""A comparison: the runs of a grid, several at once; finished runs are reused."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.federation.assembly.choose import refuse_other_optimizer
from fedtide.methods.algorithms.base import Algorithm
from fedtide.methods.detectors.base import Detector
from fedtide.records.run_directory import RunDirectory
from fedtide.records.summary import Summary, headline, of_global
from fedtide.runs.display.progress import UNWATCHED, Watch, title
from fedtide.runs.execution import execute, refuse_several_processes
from fedtide.runs.jobs.cards import share_cards
from fedtide.runs.jobs.executors import executor
from fedtide.runs.jobs.jobs import Ask, Failure
from fedtide.runs.mlflow.upload import upload_elsewhere
from fedtide.runs.open_run import run_key
from fedtide.runs.workspace import Workspace
from fedtide.settings.experiment import CompareSettings
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import Score
from fedtide.training.resources.workers import available_cores
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load_data


@dataclass(frozen=True)
class _Job:
    number: int
    key: str
    settings: RunSettings
    workspace: Workspace


_Result = tuple[Summary, list[str]]


def refuse_bad_imports(grid: Iterable[RunSettings], workspace: Workspace) -> None:
    """Refuse loggers, callbacks and detectors that cannot be imported and made, before any run.

    Lightning is imported if there are loggers or callbacks.
    """
    grid = list(grid)
    for settings in grid:
        plugins.create(Detector, settings.detector).require()
    chosen = [settings.engine.callbacks for settings in grid if settings.engine.callbacks]
    if not (chosen or workspace.loggers):
        return
    from fedtide.runs.lightning.loggers import refuse_bad_loggers
    from fedtide.runs.lightning.own_callbacks import OwnCallbacks

    refuse_bad_loggers(workspace.loggers)
    for place, callbacks in enumerate(chosen):
        if callbacks not in chosen[:place]:
            OwnCallbacks(callbacks)


def compare(
    grid: Sequence[RunSettings],
    workspace: Workspace,
    where: CompareSettings,
    watch: Watch = UNWATCHED,
    ended: Callable[[Summary], None] = lambda _: None,
    score: Score | None = None,
) -> tuple[list[Summary], int | None]:
    """Execute all runs of a grid. A run that raises an exception, or whose process dies, has failed; the others continue.

    ``where`` says which workers execute how many runs at once. ``ended`` gets the summary of each run as it finishes. Lines
    show ``score`` if it is on the next period and recorded, else the task's main score; see
    :func:`fedtide.records.summary.headline`.

    Returns:
        Summaries in the order of the grid, and the signal that stopped it before all runs had ended, if any. A failed run
        has the state ``failed`` and a ``message``; its traceback is in ``error.txt`` of its directory.

    Raises:
        SettingsError: bad input, noticed before any run or by all of them. OSError: the cluster's scheduler is gone.
    """
    for settings in grid:
        refuse_several_processes(settings)
        refuse_other_optimizer(settings, plugins.create(Algorithm, settings.algorithm))
    per_card, places = share_cards(grid, where, workspace.worlds, watch.log)
    workers, away = where.workers, bool(where.cluster)
    if not away:
        workers = min(workers or available_cores(), len(grid), places)
    comparison = _Comparison(grid, workspace, watch, ended, away=away, score=score)
    refuse_bad_imports(comparison.collect(alone=not away and workers == 1), workspace)
    with executor(where, workers, per_card, workspace.runs, watch.log) as run_jobs:
        stopped = run_jobs(_work, comparison, workers)
    return comparison.summaries, stopped if comparison.unfinished else None


def unsuccessful(summaries: Iterable[Summary]) -> list[str]:
    """A line for each run that has diverged or failed."""
    return [
        f"{summary['label']} / {summary['initializer']} / seed {summary['seed']}: {summary.get('message', 'diverged')}"
        for summary in summaries
        if summary["state"] in ("diverged", "failed")
    ]


def _work(job: _Job, ask: Ask) -> _Result:
    remarks: list[str] = []
    return execute(job.settings, job.workspace, watch=Watch(remarks.append), expected=job.key), remarks


class _Comparison:
    """The runs of a grid that have not ended, and summaries of the others; :class:`fedtide.runs.jobs.jobs.Jobs`."""

    def __init__(
        self,
        grid: Sequence[RunSettings],
        workspace: Workspace,
        watch: Watch,
        ended: Callable[[Summary], None],
        away: bool,
        score: Score | None,
    ) -> None:
        self._grid, self._workspace, self._ended, self._away, self._score = grid, workspace, ended, away, score
        self._log, self._display = watch.log, watch.display
        self._waiting: list[_Job] = []
        self._found: dict[int, Summary] = {}
        self._refused: dict[int, str] = {}
        self._remarks: set[str] = set()

    def collect(self, alone: bool) -> list[RunSettings]:
        """Note the runs that have ended; the settings of the others. Each dataset is prepared here, before several read it."""
        workspace = replace(self._workspace, mlruns=None) if self._away else self._workspace
        datasets: dict[str, Dataset] = {}
        for number, settings in enumerate(self._grid):
            if (name := settings.data.model_dump_json()) not in datasets:
                datasets[name] = load_data(settings)
            directory = RunDirectory(self._workspace.runs / (key := run_key(settings, datasets[name])))
            if (summary := directory.finished(key, settings.checkpoint.keep_finished)) is not None:
                self._end(number, summary, [f"{key}: already {summary['state']}, nothing to do"])
                continue
            if not alone:  # one worker thread each; results do not depend on it
                settings = settings.model_copy(update={"engine": settings.engine.model_copy(update={"workers": 1})})
            self._waiting.append(_Job(number, key, settings, workspace))
        self._display.count(self._done, len(self._grid))
        return [job.settings for job in self._waiting]

    @property
    def summaries(self) -> list[Summary]:
        """Of the runs that have ended or were interrupted; a SettingsError if all runs were refused."""
        if self._refused.keys() == set(range(len(self._grid))):
            raise SettingsError(next(iter(self._refused.values())))
        return [self._found[number] for number in sorted(self._found)]

    @property
    def _done(self) -> int:
        return sum(summary["state"] != "interrupted" for summary in self._found.values())

    @property
    def unfinished(self) -> bool:
        return self._done < len(self._grid)

    def next(self) -> _Job | None:
        if not self._waiting:
            return None
        job = self._waiting.pop(0)
        self._display.begin(title(job.settings), [self._workspace.runs / job.key])
        return job

    def answer(self, job: _Job, question: Any) -> None:
        pass

    def begin(self, job: _Job, place: str) -> None:
        self._log(f"{_name(job.settings)}: on {place}")

    def repeat(self, job: _Job, reason: str) -> None:
        self._log(f"{_name(job.settings)}: {reason}; resuming from its checkpoint")

    def is_interrupted(self, result: _Result) -> bool:
        return bool(result[0]["state"] == "interrupted")

    def finish(self, job: _Job, end: _Result | Failure) -> None:
        self._display.end(title(job.settings))
        if self._away:
            upload_elsewhere(self._workspace, job.settings, job.key, self._log)
        self._finish(job, end)
        self._display.count(self._done, len(self._grid))

    def _finish(self, job: _Job, end: _Result | Failure) -> None:
        settings, directory = job.settings, RunDirectory(self._workspace.runs / job.key)
        if not isinstance(end, Failure):
            self._end(job.number, *end)
            return
        if end.refused:
            self._refused[job.number] = end.message
        message = with_traceback(end, directory, self._log).message
        failed: Summary = {
            "run_key": job.key,
            "label": settings.label,
            "initializer": settings.initializer_label,
            "seed": settings.seed,
            "state": "failed",
            "message": message,
        }
        self._end(job.number, failed)

    def _end(self, number: int, summary: Summary, remarks: Iterable[str] = ()) -> None:
        self._found[number] = summary
        for line in remarks:
            if line not in self._remarks:  # runs of one comparison have many remarks in common
                self._remarks.add(line)
                self._log(f"  {line}")
        if number not in self._refused:  # what is refused is listed at the end, or once if it is everything
            self._log(f"{self._done}/{len(self._grid)}  {_line(self._grid[number], summary, self._score)}")
        self._ended(summary)


def _name(settings: RunSettings) -> str:
    return f"{settings.label} / {settings.initializer_label} / seed {settings.seed}"


def _line(settings: RunSettings, summary: Summary, score: Score | None) -> str:
    if summary["state"] == "interrupted":
        return f"{_name(settings)}  interrupted after round {summary.get('rounds', 0)}"
    found = headline(summary, score)
    beside = of_global(summary, found)
    shown = "" if found is None else f"  {found.text}" + ("" if beside is None else f" ({beside.text})")
    state = "" if summary["state"] == "complete" else f"  {summary['state'].upper()}"
    why = f": {summary['message']}" if summary["state"] == "failed" else ""
    return f"{_name(settings)}{shown}{state}{why}"


def refuse_unrecorded(params: Params, grid: Sequence[RunSettings]) -> None:
    """Refuse a ``report.metric`` that some runs would not record, before they are executed."""
    score = Score(params.experiment.report.metric)
    for settings in grid:
        if score.metric is not None and score.metric not in settings.evaluation.metrics:
            raise SettingsError(
                f"report.metric = {score.name}: {settings.label} does not record it; add {score.metric} to "
                "evaluation.metrics"
            )


def with_traceback(failure: Failure, directory: RunDirectory, log: Callable[[str], None]) -> Failure:
    """The failure, with the file of its traceback in the message; it is logged if the run had no directory yet."""
    if not failure.traceback or failure.refused:
        return failure
    if directory.error.is_file():
        return replace(failure, message=f"{failure.message} ({directory.error})")
    log(failure.traceback.rstrip())
    return failure
