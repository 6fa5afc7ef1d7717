"""DVC stage: search settings on the validation split."""

from pathlib import Path

from fedtide import stages
from fedtide.cli import PARAMS, guarded, leave, mlruns_folder, say
from fedtide.params import Params
from fedtide.processes import stop_with_parent
from fedtide.tuning.study import tune


def main() -> None:
    """Play the study."""
    stop_with_parent()
    params = Params.read(PARAMS)
    result = tune(params, stages.place(params, Path("runs"), None, mlruns_folder(None)), Path("tuning"), say)
    if result.stopped is not None:
        leave({"state": "interrupted", "signal": result.stopped})
    print(result.text)


if __name__ == "__main__":
    guarded(main)
