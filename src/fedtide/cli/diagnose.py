"""``fedtide diagnose``."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from fedtide.cli.exits import exit_with
from fedtide.cli.options import PARAMS, Json, Override, ParamsFile, Quiet, Worlds, read_params
from fedtide.cli.reporter import log, output, silent

MEANING = {
    "F_init": "F of its initial model",
    "F_previous": "F of the previous final model",
    "F_average": "F of the mean of final models since the pilot",
    "F_first": "F of the run's initial model",
    "F_end": "F of its final model",
    "gradient": "mean |grad F|^2",
    "beta": "beta",
    "theta": "Theta (lower bound)",
    "sigma": "sigma",
    "zeta2": "zeta_2",
    "drift": "Lambda",
    "rate": "eta",
    "largest_rate": "largest eta allowed",
    "a": "(a) descent",
    "b": "(b) sampling, 1/D_k",
    "b_tight": "(b) sampling, 1/D",
    "c": "(c) sampling while drifting",
    "d": "(d) drift",
    "bound": "bound",
}


class Spread(StrEnum):
    """Readings of sigma_k^2."""

    scatter = "scatter"
    variance = "variance"


def diagnose(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    worlds: Worlds = Path("worlds"),
    theta_power: Annotated[
        int, typer.Option(min=1, max=2, help="Power of Theta in (c): 2 as derived, 1 as published.")
    ] = 2,
    spread: Annotated[
        Spread, typer.Option(help="sigma_k^2: scatter of the samples, or their variance.")
    ] = Spread.scatter,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of samples drawn per client for Theta.")] = 1000,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convergence analysis of a run of softmax regression: losses at session starts, constants, terms of the bound."""
    from fedtide.core.errors import Diverged
    from fedtide.diagnostics import trace
    from fedtide.worlds.files import timeline_for
    from fedtide.worlds.prepared import load_data

    settings = read_params(params, overrides).run()
    data = load_data(settings)
    options = trace.Options(1 if theta_power == 1 else 2, spread.value, pairs)
    report = silent if quiet else log
    try:
        rows = trace.diagnose(settings, data, timeline_for(settings, data, worlds), options, report)
    except Diverged as error:
        exit_with({"state": "diverged", "message": str(error)})
        return
    for line in trace.remarks(settings):
        report(line)
    if as_json:
        finite = [{key: value if math.isfinite(value) else None for key, value in row.values().items()} for row in rows]
        print(json.dumps(finite))
        return
    table = Table("session", *(str(row.session) for row in rows), box=SIMPLE, pad_edge=False)
    for name, meaning in MEANING.items():
        table.add_row(meaning, *(f"{row.values()[name]:.4g}" for row in rows))
    output().print(table)
