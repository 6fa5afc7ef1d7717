"""What a command would execute: every cell is assembled once, or trained for one round, and nothing is recorded."""

import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import short_hash
from fedtide.federation.assembly.footprint import gigabytes
from fedtide.federation.module import FederatedModule
from fedtide.records.run_directory import RunDirectory
from fedtide.records.summary import Summary
from fedtide.runs.compare import compare, refuse_bad_imports
from fedtide.runs.display.progress import Watch, title
from fedtide.runs.execution import refuse_several_processes
from fedtide.runs.lightning.trainer import device_of, quiet_lightning
from fedtide.runs.open_run import open_run
from fedtide.runs.workspace import Workspace
from fedtide.settings.experiment import CompareSettings
from fedtide.settings.run import RunSettings, StopSettings
from fedtide.training.resources.workers import available_cores


class Estimate(NamedTuple):
    """Runs of a command, those that have ended, seconds of the others (None: unknown), and least bytes of the largest."""

    runs: int
    ended: int
    seconds: float | None
    bytes: int

    def __str__(self) -> str:
        time = "unknown" if self.seconds is None else f"about {self.seconds / 60:.1f} min"
        return (
            f"{self.runs} runs, {self.ended} already ended; time: {time}; largest run: at least {gigabytes(self.bytes)}"
        )


def _cell(settings: RunSettings) -> str:
    """Hash of all settings but the seed."""
    return short_hash(settings.canonical() | {"seed": 0, "world_seed": 0, "label": settings.label})


def _cells(grid: Iterable[RunSettings]) -> list[RunSettings]:
    """A run of each cell: of all that differ in their seed."""
    return list({_cell(settings): settings for settings in grid}.values())


def dry_run(
    grid: Sequence[RunSettings], where: Workspace, workers: int, trials: Sequence[RunSettings] = (), ended: int = 0
) -> Estimate:
    """How many runs of a grid and trials there are, the time of those that have not ended, and the memory of the largest.

    ``workers``: runs at once, 0 for one per core. ``trials``: further runs, beside the ``ended`` ones. The time is that of
    recorded runs of the same label, else of any label of these runs.

    Raises:
        SettingsError: one cannot be assembled; the message names it.
    """
    cells = _cells([*grid, *trials])
    refuse_bad_imports(cells, where)
    needs = {_cell(settings): _assembled(settings, where) for settings in cells}
    waiting = [*trials, *(each for each in grid if open_run(each, where).directory.summary() is None)]
    paces: dict[str, list[float]] = {settings.label: [] for settings in cells}
    for path in where.runs.glob("*/summary.json"):
        with suppress(SettingsError):  # damaged: `fedtide check` lists it
            recorded: Any = RunDirectory(path.parent).summary()
            paces.get(recorded["label"], []).append(recorded["seconds"] / max(1, recorded["rounds"]))
    of_any, time = [pace for each in paces.values() for pace in each], None
    if of_any or not waiting:
        pace = {label: statistics.median(own or of_any or [0]) for label, own in paces.items()}
        seconds = sum(pace[each.label] * needs[_cell(each)][0] for each in waiting)
        time = seconds / max(1, min(workers or available_cores(), len(waiting)))
    largest, total = max((size for _, size in needs.values()), default=0), len(grid) + len(trials) + ended
    return Estimate(total, total - len(waiting), time, largest)


def _assembled(settings: RunSettings, where: Workspace) -> tuple[int, int]:
    """Rounds of a run, and the bytes that it takes at least."""
    try:
        refuse_several_processes(settings)
        run = open_run(settings, where)
        with quiet_lightning():
            module = FederatedModule(settings, run.timeline, run.data).to(device_of(settings))
            module.build()
    except SettingsError as error:
        raise SettingsError(f"{title(settings)}: {error}") from None
    module.parts.workers.close()
    return run.timeline.rounds, module.footprint.run + module.footprint.kept.size


def rehearse(
    grid: Sequence[RunSettings], where: Workspace, how: CompareSettings, watch: Watch
) -> tuple[list[Summary], int | None]:
    """Train one round of each cell in a temporary folder; returns as :func:`fedtide.runs.compare.compare`."""
    once = StopSettings.model_construct(bytes=0.0)  # no setting, but every evaluated round has reached it
    cells = [(each, each.evaluation.model_copy(update={"every": 1})) for each in _cells(grid)]
    short = [each.model_copy(update={"stop": once, "evaluation": evaluation}) for each, evaluation in cells]
    with TemporaryDirectory() as folder:
        return compare(short, Workspace(Path(folder), where.worlds, loggers=where.loggers), how, watch)
