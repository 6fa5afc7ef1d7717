"""DVC stage: fetch and prepare the dataset."""

from pathlib import Path

from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS
from fedtide.runs import stages
from fedtide.settings.params import Params


def main() -> None:
    """Prepare the dataset and write its description."""
    stages.download(Params.read(PARAMS), Path("data/dataset.json"))


if __name__ == "__main__":
    guarded(main)
