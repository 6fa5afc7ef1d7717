"""DVC stage: what the other stages depend on, settings as they are resolved and hashes of code."""

from functools import partial
from pathlib import Path

import places
from fedtide.cli.exits import guarded
from fedtide.cli.options import PARAMS


def main() -> None:
    """Write the files."""
    from fedtide.cli import stages  # with torch, which takes seconds
    from fedtide.settings.params import Params
    from fedtide.studies.tuning.space import Space

    params = Params.read(PARAMS)
    tune = params.experiment.tune
    tuned = Space(params).extremes if tune.space else [params.run(seed=tune.run_seeds[0])]
    stages.inputs(params, tuned, Path("inputs"))


if __name__ == "__main__":
    guarded(partial(places.explained, main))
