"""``fedtide evaluate``: the final model of a run on another population or split."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.options import Json, Override, Runs
from fedtide.cli.reporter import log, print_table


def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run directory, run key, or the beginning of its name.")],
    overrides: Override = None,
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Score the final global model of a run after the last round of another world, which --set describes."""
    from fedtide.runs.catalog import find
    from fedtide.settings.scores import score_of
    from fedtide.studies.elsewhere import evaluate as score

    found = score(find(runs, run), overrides or (), log)
    if as_json:
        print(json.dumps(found))
        return
    shown = {name: "" if value is None else score_of(name).shown(value).strip() for name, value in found.items()}
    print_table(("score", "value"), shown.items())
