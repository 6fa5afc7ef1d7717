"""``fedtide trees``."""

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
    """Fit gradient-boosted trees on the rows of a table that clients train on: baselines beside `pooled` and `local`."""
    from fedtide.core.errors import SettingsError
    from fedtide.core.storage.files import creatable
    from fedtide.records.measures.metrics import mean_std
    from fedtide.report.formats import Scale
    from fedtide.settings.scores import score_of
    from fedtide.studies.trees import BASELINES, FILE
    from fedtide.studies.trees import trees as fit

    if only is not None and only not in BASELINES:
        raise SettingsError(f"--only = {only!r} should be {' or '.join(BASELINES)}")
    chosen = read_params(params, overrides)
    with progress(quiet) as watch:
        frame = fit(chosen, creatable(out), BASELINES if only is None else (only,), worlds, watch)
    scores = frame.drop(columns=["session", "rows", "data", "timeline"])
    means = scores.groupby(["baseline", "seed"], sort=False).mean()  # over sessions
    found = means.groupby(level="baseline", sort=False)
    if as_json:
        print(found.mean().to_json(orient="index"))
        return
    scales = {key: Scale(score_of(key).share) for key in map(str, means)}
    heads = [scale.heading(f"{key.partition('_')[0]} {score_of(key).words}") for key, scale in scales.items()]
    lines = [[str(name), *(scales[key].value(*mean_std(own[key])) for key in scales)] for name, own in found]
    print_table(["baseline", *heads], lines)
    print(f"\nmeans over sessions, ± over seeds; every session: {out / FILE}")
