"""Searches as the tests make them: below one folder, also ones that are killed."""

import csv
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedtide.records.run_directory import RunDirectory
from fedtide.runs.display.progress import Watch
from fedtide.runs.jobs.processes import main_module_hidden, worker_context
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.studies.tuning.study import TuneResult, tune
from fedtide.studies.tuning.trial import Pruner


def search(params: Params, home: Path, log: Callable[[str], None] = lambda _: None) -> TuneResult:
    """Run directories in ``home/runs``, results in ``home/tuning``."""
    return tune(params, Workspace(home / "runs"), home / "tuning", Watch(log))


def table(home: Path, name: str = "trials") -> list[dict[str, str]]:
    """The table of a search's trials."""
    with (home / "tuning" / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def scores(home: Path, run: str, column: str = "validation_accuracy") -> list[float]:
    """A column of a trial's history, but for rounds without a value."""
    return [float(row[column]) for row in RunDirectory(home / "runs" / run).history() if row[column]]


def journal(home: Path) -> Path:
    """The journal of the only study."""
    (found,) = (home / "tuning").glob("*.journal")
    return found


def lines_of(home: Path) -> list[bytes]:
    """The lines of that journal."""
    return journal(home).read_bytes().splitlines(keepends=True)


def begun(whole: Path, count: int, home: Path) -> Path:
    """A copy of a search with so many lines of its journal and all of its runs."""
    shutil.copytree(whole / "runs", home / "runs")
    (home / "tuning").mkdir()
    (home / "tuning" / journal(whole).name).write_bytes(b"".join(lines_of(whole)[:count]))
    return home


def assert_same_files(home: Path, other: Path) -> None:
    for name in ("trials.csv", "best.yaml"):
        assert (home / "tuning" / name).read_bytes() == (other / "tuning" / name).read_bytes()


def _search_to_death(params: Params, home: Path, count: int) -> None:
    """A search that kills its process: after ``count`` rounds, or ``count`` trials with several workers."""
    alone, left = params.experiment.tune.workers == 1, [count]

    def kill(*_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if alone:
        Pruner.on_train_batch_start = kill  # type: ignore[method-assign]
    search(params, home, (lambda _: None) if alone else kill)


def killed(params: Params, home: Path, workers: int, count: int) -> None:
    """A search in a process of its own that kills itself; see above."""
    several = Params({**params.raw, "tune": {**params.raw["tune"], "workers": workers}})
    process = worker_context().Process(target=_search_to_death, args=(several, home, count))
    with main_module_hidden():
        process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
