"""DVC stage: fetch and prepare the dataset."""

from functools import partial
from pathlib import Path

import places
from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS


def main() -> None:
    """Prepare the dataset and write its description."""
    from fedtide.cli import stages  # with torch, which takes seconds
    from fedtide.settings.params import Params

    stages.download(Params.read(PARAMS), Path("data/dataset.json"))


if __name__ == "__main__":
    guarded(partial(places.explained, main))
