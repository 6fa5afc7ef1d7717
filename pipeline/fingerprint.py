"""DVC stage: one small file per compared algorithm that changes when the code it depends on changes."""

from pathlib import Path

from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS
from fedtide.runs import stages
from fedtide.settings.params import Params
from fedtide.tuning.space import Space


def main() -> None:
    """Write the hashes."""
    params = Params.read(PARAMS)
    tuned = Space(params).extremes if params.experiment.tune.space else [params.run()]
    stages.code(params, tuned, Path("code"))


if __name__ == "__main__":
    guarded(main)
