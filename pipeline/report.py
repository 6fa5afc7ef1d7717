"""DVC stage: tables, figures and the page of the comparison."""

from pathlib import Path

from fedtide import stages
from fedtide.cli import PARAMS, guarded
from fedtide.settings import Params


def main() -> None:
    """Build the report and print its table."""
    print(stages.report(Params.read(PARAMS), Path("runs"), Path("worlds"), Path("report"), "dvc repro").text)


if __name__ == "__main__":
    guarded(main)
