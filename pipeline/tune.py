"""DVC stage: search for good settings on the validation split."""

from pathlib import Path

from fedtide.cli.exits import exit_with, guarded
from fedtide.cli.options import PARAMS, mlruns_folder
from fedtide.cli.reporter import log
from fedtide.runs import stages
from fedtide.runs.processes import stop_with_parent
from fedtide.settings.params import Params
from fedtide.tuning.study import tune


def main() -> None:
    """Run the search."""
    stop_with_parent()
    params = Params.read(PARAMS)
    result = tune(params, stages.workspace(params, Path("runs"), None, mlruns_folder(None)), Path("tuning"), log)
    if result.stopped is not None:
        exit_with({"state": "interrupted", "signal": result.stopped})
    print(result.text)


if __name__ == "__main__":
    guarded(main)
