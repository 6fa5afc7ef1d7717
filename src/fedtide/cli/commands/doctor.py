"""``fedtide doctor``: whether this machine can execute runs."""

import json
from pathlib import Path

import typer

from fedtide.cli.options import PARAMS, Json, Mlruns, Override, ParamsFile, Runs, mlruns_named, read_params


def doctor(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    mlruns: Mlruns = None,
    as_json: Json = False,
) -> None:
    """Examine packages, device, memory, disks, locks, plug-ins and MLflow. Exit status 1 if there is a problem."""
    from fedtide.runs.diagnosis import findings

    found = list(findings(read_params(params, overrides), runs, mlruns_named(mlruns)))
    if as_json:
        print(json.dumps([dict(zip(("topic", "fact", "cure"), each, strict=True)) for each in found]))
    for topic, fact, cure in () if as_json else found:
        print(f"PROBLEM {topic}: {fact}; {cure}" if cure else f"{topic}: {fact}")
    if any(cure for *_, cure in found):
        raise typer.Exit(1)
