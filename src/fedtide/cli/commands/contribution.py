"""``fedtide contribution``."""

import csv
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.options import PARAMS, Json, Override, ParamsFile, Quiet, Worlds, read_params
from fedtide.cli.reporter import log, print_table, progress
from fedtide.core.errors import Diverged


def contribution(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    clients: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Only these clients, such as 0012,0031 (IDs where the data name none). Default: all."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of contribution.csv.")] = Path("contribution"),
    worlds: Worlds = Path("worlds"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Retrain without each client in turn, and show how much that client improves the final model.

    Finished clients are read from contribution.csv, so an interrupted command
    continues.
    """
    from fedtide.studies.contribution import FILE, contributions, shown
    from fedtide.studies.leave_one_out import columns

    chosen = read_params(params, overrides)
    settings, named = chosen.run(), None if clients is None else next(csv.reader([clients]), [])
    try:
        with progress(quiet) as watch:
            found = contributions(settings, out, named, worlds, watch)
    except Diverged as error:
        log(f"the run with all clients {error}")
        raise typer.Exit(1) from None
    names = columns(settings.task)
    if as_json:
        values = [[None if math.isnan(value) else value for value in each.values] for each in found]
        facts = [
            asdict(each) | {"values": dict(zip(names, own, strict=True))}
            for each, own in zip(found, values, strict=True)
        ]
        print(json.dumps(facts))
        return
    lines = [(each.name or str(each.client), *map(shown, names, each.values), str(each.first_round)) for each in found]
    print_table(("client", *names, "first round"), lines)
    print(f"\ncontributions: {out / FILE}")
