"""A comparison: the runs of a grid, several at once; finished runs are reused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.engine.workers import available_cores
from fedtide.runs.identity import run_key
from fedtide.runs.processes import in_parallel
from fedtide.runs.run import run
from fedtide.settings.run import RunSettings
from fedtide.tracking.run_directory import RunDirectory
from fedtide.tracking.workspace import Workspace
from fedtide.world.dataset import Dataset
from fedtide.world.prepared import load_data


@dataclass(frozen=True)
class _Job:
    number: int
    settings: RunSettings
    workspace: Workspace


def refuse_several_processes(settings: RunSettings) -> None:
    """Refuse runs of several processes: each process executes the whole command again, so the run must be its only one.

    Raises:
        SettingsError: the settings ask for several.
    """
    if settings.engine.devices > 1:
        raise SettingsError(
            f"engine.devices = {settings.engine.devices}: only the command `fedtide run` supports several processes for one "
            "run; comparisons and searches execute whole runs in parallel, see compare.workers and tune.workers"
        )


def _work(job: _Job) -> tuple[dict[str, Any], list[str]]:
    remarks: list[str] = []
    return run(job.settings, job.workspace, log=remarks.append, wait=True), remarks


def compare(
    grid: Sequence[RunSettings],
    workspace: Workspace,
    workers: int,
    log: Callable[[str], None],
    ended: Callable[[dict[str, Any]], None] = lambda _: None,
) -> tuple[list[dict[str, Any]], int | None]:
    """Execute all runs of a grid.

    Args:
        grid: settings of the runs.
        workspace: where records go.
        workers: runs at once; 0 for one per core.
        log: gets one line per finished run.
        ended: gets the summary of each run as it finishes.

    Returns:
        Summaries in the order of the grid (of the runs that ended), and the signal that stopped it, if any.

    Raises:
        SettingsError: bad input.
    """
    for settings in grid:
        refuse_several_processes(settings)
    found: dict[int, dict[str, Any]] = {}
    reported: set[str] = set()

    def done(number: int, summary: dict[str, Any], remarks: Sequence[str] = ()) -> None:
        found[number] = summary
        for line in remarks:
            if line not in reported:  # runs of one comparison have many remarks in common
                reported.add(line)
                log(f"  {line}")
        log(f"{len(found)}/{len(grid)}  {_line(grid[number], summary)}")
        ended(summary)

    jobs = []
    together = min(workers or available_cores(), len(grid))
    for number, (settings, summary) in enumerate(zip(grid, _finished(grid, workspace), strict=True)):
        if summary is not None:
            done(number, summary, [f"{summary['run_key']}: already {summary['state']}, nothing to do"])
            continue
        engine = settings.engine
        if together > 1:  # several runs share the cores: one worker thread each; results do not depend on it
            engine = engine.model_copy(update={"workers": 1})
        jobs.append(_Job(number, settings.model_copy(update={"engine": engine}), workspace))
    stopped = in_parallel(_work, jobs, together, lambda job, result: done(job.number, *result)) if jobs else None
    return [found[number] for number in sorted(found)], stopped


def _finished(grid: Sequence[RunSettings], workspace: Workspace) -> Iterator[dict[str, Any] | None]:
    """The summary of each run that has ended; each dataset is prepared once, before many processes read it."""
    datasets: dict[str, Dataset] = {}
    for settings in grid:
        name = settings.data.model_dump_json()
        if name not in datasets:
            datasets[name] = load_data(settings)
        key = run_key(settings, datasets[name])
        yield RunDirectory(workspace.runs / key).finished(key)


def _line(settings: RunSettings, summary: dict[str, Any]) -> str:
    accuracy = summary.get("final_accuracy")
    shown = "" if accuracy is None else f"  final accuracy {accuracy:.1%}"
    state = "" if summary["state"] == "complete" else f"  {summary['state'].upper()}"
    return f"{settings.label} / {settings.initialiser_label} / seed {settings.seed}{shown}{state}"
