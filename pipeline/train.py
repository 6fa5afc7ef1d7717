"""DVC stage: play the compared runs of one algorithm."""

import sys
from pathlib import Path

from fedtide import stages
from fedtide.cli import PARAMS, guarded, leave, mlruns_folder, say
from fedtide.params import Params
from fedtide.processes import stop_with_parent


def main() -> None:
    """Play the runs of the algorithm named on the command line."""
    stop_with_parent()
    params, label = Params.read(PARAMS), sys.argv[1]
    place = stages.place(params, Path("runs"), Path("worlds"), mlruns_folder(None))
    _, stopped = stages.train(params, place, say, [label], Path("outcomes") / f"{label}.json")
    if stopped is not None:
        leave({"state": "interrupted", "signal": stopped})


if __name__ == "__main__":
    guarded(main)
