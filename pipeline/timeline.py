"""DVC stage: write the timelines of the compared seeds."""

from pathlib import Path

from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS
from fedtide.cli.reporter import log


def main() -> None:
    """Write the timelines."""
    from fedtide.cli import stages  # with torch, which takes seconds
    from fedtide.settings.params import Params

    stages.timeline(Params.read(PARAMS), Path("worlds"), log)


if __name__ == "__main__":
    guarded(main)
