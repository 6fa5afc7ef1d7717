"""DVC stage: tables, figures and the page of the comparison."""

from pathlib import Path

from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS
from fedtide.cli.reporter import print_report
from fedtide.runs import stages
from fedtide.settings.params import Params


def main() -> None:
    """Build the report and print its table."""
    print_report(stages.report(Params.read(PARAMS), Path("runs"), Path("worlds"), Path("report"), "dvc repro"))


if __name__ == "__main__":
    guarded(main)
