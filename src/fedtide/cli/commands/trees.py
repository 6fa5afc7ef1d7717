"""``fedtide trees``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.options import PARAMS, Json, Override, ParamsFile, Quiet, Worlds, read_params
from fedtide.cli.reporter import print_table, progress


def trees(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME", help="pooled_trees or local_trees. Default: both.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of trees.csv.")] = Path("trees"),
    worlds: Worlds = Path("worlds"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit gradient-boosted trees on the rows of a table that clients train on: baselines beside `pooled` and `local`.

    For every seed of `compare`, scikit-learn's HistGradientBoosting with its
    default settings is fitted at the end of every session and scored on the
    held-out rows of the runs.
    """
    from fedtide.core.errors import SettingsError
    from fedtide.core.storage.files import creatable
    from fedtide.report.formats import Scale
    from fedtide.settings.scores import score_of
    from fedtide.studies.trees import FILE, Baseline, means
    from fedtide.studies.trees import trees as fit

    if only is not None and only not in set(Baseline):
        raise SettingsError(f"--only = {only!r} should be pooled_trees or local_trees")
    chosen = read_params(params, overrides)
    with progress(quiet) as watch:
        frame = fit(chosen, creatable(out), tuple(Baseline) if only is None else (Baseline(only),), worlds, watch)
    found = means(frame)
    if as_json:
        print(json.dumps({name: {key: value[0] for key, value in row.items()} for name, row in found.items()}))
        return
    keys = [(key, score_of(key)) for key in next(iter(found.values()))]
    heads = [Scale(score.share).heading(f"{key.partition('_')[0]} {score.words}") for key, score in keys]
    lines = [[name, *(Scale(score.share).value(*row[key]) for key, score in keys)] for name, row in found.items()]
    print_table(["baseline", *heads], lines)
    print(f"\nmeans over sessions, ± over seeds; every session: {out / FILE}")
