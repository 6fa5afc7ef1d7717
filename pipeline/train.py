"""DVC stage: execute the compared runs of one algorithm."""

import sys
from pathlib import Path

import places
from fedtide.cli.exits import exit_with_all, guarded
from fedtide.cli.options import PARAMS
from fedtide.cli.reporter import progress
from fedtide.runs.jobs.processes import start_workers_early, stop_with_parent


def main() -> None:
    """Execute the runs of the algorithm named on the command line."""
    stop_with_parent()
    start_workers_early()
    from fedtide.cli import stages  # with torch, while the workers import it too
    from fedtide.core.storage.files import folder
    from fedtide.report.curves import write_curves
    from fedtide.runs.workspace import workspace
    from fedtide.settings.params import Params

    params, label = Params.read(PARAMS), sys.argv[1]
    where = workspace(params, folder(places.runs()), Path("worlds"), places.mlruns())
    with progress(quiet=False) as watch:
        outcomes = Path("outcomes") / f"{label}.json"
        summaries, stopped = stages.train(params, where, watch, [label], outcomes)
    if stopped is None:
        write_curves(summaries, places.runs(), Path("metrics") / f"{label}.json", Path("curves") / label)
    exit_with_all(summaries, stopped, params.experiment.compare.allow_failures)


if __name__ == "__main__":
    guarded(main)
