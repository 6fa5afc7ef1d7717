"""DVC stage: tables, figures and the page of the comparison."""

from pathlib import Path

import places
from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS
from fedtide.cli.reporter import print_report


def main() -> None:
    """Build the report and print its table."""
    from fedtide.runs import stages  # with torch, which takes seconds
    from fedtide.settings.params import Params

    print_report(stages.report(Params.read(PARAMS), places.runs(), Path("worlds"), Path("report"), "dvc repro"))


if __name__ == "__main__":
    guarded(main)
