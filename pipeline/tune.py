"""DVC stage: search for good settings on the validation split."""

from pathlib import Path

import places
from fedtide.cli.exits import exit_with_search, guarded
from fedtide.cli.options import PARAMS
from fedtide.cli.reporter import progress
from fedtide.runs.jobs.processes import stop_with_parent


def main() -> None:
    """Run the search."""
    stop_with_parent()
    from fedtide.core.storage.files import folder
    from fedtide.runs.workspace import workspace  # with torch, which takes seconds
    from fedtide.settings.params import Params
    from fedtide.studies.tuning.study import tune

    params = Params.read(PARAMS)
    where = workspace(params, folder(places.runs()), None, places.mlruns())
    with progress(quiet=False) as watch:
        result = tune(params, where, Path("tuning"), watch)
    exit_with_search(result)


if __name__ == "__main__":
    guarded(main)
