"""DVC stage: one small file per compared algorithm that changes when the code it depends on changes."""

from pathlib import Path

from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS


def main() -> None:
    """Write the hashes."""
    from fedtide.runs import stages  # with torch, which takes seconds
    from fedtide.settings.params import Params
    from fedtide.tuning.space import Space

    params = Params.read(PARAMS)
    tuned = Space(params).extremes if params.experiment.tune.space else [params.run()]
    stages.code(params, tuned, Path("code"))


if __name__ == "__main__":
    guarded(main)
