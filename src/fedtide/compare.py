"""A comparison: many runs of one grid, several at once; what is done is reused."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtide.engine.workers import available_cores
from fedtide.errors import SettingsError
from fedtide.processes import in_parallel
from fedtide.settings import RunSettings
from fedtide.world import load_data

if TYPE_CHECKING:
    import lightning as L


@dataclass(frozen=True)
class Place:
    """Where runs and what belongs to them are kept.

    Attributes:
        runs: run directories. worlds: timelines of the partition stage, or None.
        mlruns: MLflow's folder, or None for no mirror. experiment, comparison: MLflow's names for this grid.
    """

    runs: Path
    worlds: Path | None = None
    mlruns: Path | None = None
    experiment: str = "fedtide"
    comparison: str = ""


@dataclass(frozen=True)
class _Job:
    settings: RunSettings
    place: Place


def tracked(
    settings: RunSettings,
    place: Place,
    say: Callable[[str], None],
    show: Callable[[str], None] | None = None,
    name: str | None = None,
    wait: bool = False,
    callbacks: Sequence[L.Callback] = (),
) -> dict[str, Any]:
    """One run, mirrored into MLflow if the place has a folder for it; MLflow is not imported otherwise."""
    from fedtide.run import execute  # with Lightning, whose seconds of import only a process that plays runs needs

    play = functools.partial(
        execute, settings, place.runs, name=name, worlds=place.worlds, show=show, say=say, wait=wait
    )
    try:
        if place.mlruns is None:
            return play(callbacks=callbacks)
        from fedtide.tracking.mlflow import MlflowMirror

        with MlflowMirror(place.mlruns, place.experiment, place.comparison, say) as mirror:
            return play(callbacks=[*callbacks, mirror], prepare=mirror.prepare)
    finally:
        gc.collect()  # trainer, module and data refer to each other: else a process piles up the data of many runs


def refuse_several_processes(settings: RunSettings) -> None:
    """A run of several processes starts its whole command again in each of them, so it has to be the command's only one.

    Raises:
        SettingsError: the settings ask for several.
    """
    if settings.engine.devices > 1:
        raise SettingsError(
            f"engine.devices = {settings.engine.devices}: several processes for one run are for `fedtide run` alone; "
            "here runs are played side by side, see compare.workers and tune.workers"
        )


def _work(job: _Job) -> tuple[dict[str, Any], list[str]]:
    remarks: list[str] = []
    return tracked(job.settings, job.place, remarks.append, wait=True), remarks


def compare(
    grid: Sequence[RunSettings],
    place: Place,
    workers: int,
    say: Callable[[str], None],
    ended: Callable[[dict[str, Any]], None] = lambda _: None,
) -> tuple[list[dict[str, Any]], int | None]:
    """Play all runs of a grid.

    Args:
        grid: settings of the runs.
        place: where records go.
        workers: runs at once; 0 for one per core.
        say: gets one line per finished run.
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
    jobs = [_Job(settings, place) for settings in grid]
    said: set[str] = set()
    order = {id(job): index for index, job in enumerate(jobs)}

    def done(job: _Job, result: tuple[dict[str, Any], list[str]]) -> None:
        summary, remarks = result
        found[order[id(job)]] = summary
        for line in remarks:
            if line not in said:  # runs of one comparison have much to say in common
                said.add(line)
                say(f"  {line}")
        say(f"{len(found)}/{len(jobs)}  {_line(job.settings, summary)}")
        ended(summary)

    stopped = in_parallel(_work, jobs, together, done)
    return [found[index] for index in sorted(found)], stopped


def _line(settings: RunSettings, summary: dict[str, Any]) -> str:
    accuracy = summary.get("final_accuracy")
    shown = "" if accuracy is None else f"  final accuracy {accuracy:.1%}"
    state = "" if summary["state"] == "complete" else f"  {summary['state'].upper()}"
    return f"{settings.label} / {settings.initialiser_label} / seed {settings.seed}{shown}{state}"
