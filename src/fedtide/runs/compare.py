"""A comparison: many runs of one grid, several at once; what is done is reused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.engine.workers import available_cores
from fedtide.runs.processes import in_parallel
from fedtide.runs.run import run
from fedtide.settings.run import RunSettings
from fedtide.tracking.workspace import Workspace
from fedtide.world.prepared import load_data


@dataclass(frozen=True)
class _Job:
    settings: RunSettings
    workspace: Workspace


def refuse_several_processes(settings: RunSettings) -> None:
    """A run of several processes starts its whole command again in each of them, so it has to be the command's only one.

    Raises:
        SettingsError: the settings ask for several.
    """
    if settings.engine.devices > 1:
        raise SettingsError(
            f"engine.devices = {settings.engine.devices}: several processes for one run are for `fedtide run` alone; "
            "here runs are executed side by side, see compare.workers and tune.workers"
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
        ended: gets the summary of each finished run, as they come.

    Returns:
        Summaries in the order of the grid (of the runs that ended), and the signal that stopped it, if any.

    Raises:
        SettingsError: bad input.
    """
    for settings in grid:
        refuse_several_processes(settings)
    load_data(grid[0])  # one process prepares the data before many read it
    found: dict[int, dict[str, Any]] = {}
    together = min(workers or available_cores(), len(grid))
    if together > 1:  # several runs share the cores: one worker thread each; no result depends on it
        grid = [item.model_copy(update={"engine": item.engine.model_copy(update={"workers": 1})}) for item in grid]
    jobs = [_Job(settings, workspace) for settings in grid]
    said: set[str] = set()
    order = {id(job): index for index, job in enumerate(jobs)}

    def done(job: _Job, result: tuple[dict[str, Any], list[str]]) -> None:
        summary, remarks = result
        found[order[id(job)]] = summary
        for line in remarks:
            if line not in said:  # runs of one comparison have much to log in common
                said.add(line)
                log(f"  {line}")
        log(f"{len(found)}/{len(jobs)}  {_line(job.settings, summary)}")
        ended(summary)

    stopped = in_parallel(_work, jobs, together, done)
    return [found[index] for index in sorted(found)], stopped


def _line(settings: RunSettings, summary: dict[str, Any]) -> str:
    accuracy = summary.get("final_accuracy")
    shown = "" if accuracy is None else f"  final accuracy {accuracy:.1%}"
    state = "" if summary["state"] == "complete" else f"  {summary['state'].upper()}"
    return f"{settings.label} / {settings.initialiser_label} / seed {settings.seed}{shown}{state}"
