"""DVC stage: tables, figures and the page of the comparison."""

from pathlib import Path

from fedtide import stages
from fedtide.cli import PARAMS, guarded, tell
from fedtide.params import Params


def main() -> None:
    """Build the report and print its table."""
    tell(stages.report(Params.read(PARAMS), Path("runs"), Path("worlds"), Path("report"), "dvc repro"))


if __name__ == "__main__":
    guarded(main)
