"""DVC stage: write the timelines of the compared seeds."""

from pathlib import Path

from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS
from fedtide.cli.reporter import log
from fedtide.runs import stages
from fedtide.settings.params import Params


def main() -> None:
    """Write the timelines."""
    stages.partition(Params.read(PARAMS), Path("worlds"), log)


if __name__ == "__main__":
    guarded(main)
