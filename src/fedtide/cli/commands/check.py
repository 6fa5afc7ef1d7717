"""``fedtide check`` and ``fedtide doctor``: whether records are what runs wrote, and whether this machine can execute runs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtide.cli.options import PARAMS, Json, Mlruns, Override, ParamsFile, Runs, mlruns_named, read_params

if TYPE_CHECKING:
    from fedtide.runs.check import Checked


_STATES = ("intact", "unfinished", "running", "damaged")


def check(
    runs: Annotated[Path, typer.Argument(help="Folder of run directories.")] = Path("runs"),
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Remove the checkpoints of complete, intact runs, which only serve to repair them; records and "
            "models are kept.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Verify the records of all runs of a folder: nothing missing, nothing changed. Exit status 1 if a run is damaged."""
    from fedtide.runs.check import check as verify

    found = list(verify(runs))
    freed = {each.name: _freed(runs, each) for each in found} if prune else {}
    if as_json:
        print(json.dumps([asdict(each) | ({"freed": freed[each.name]} if prune else {}) for each in found]))
    else:
        for each in found:
            for problem in each.problems:
                print(f"{each.name}: {problem}")
        print(_summary(found))
        if prune:
            count = sum(size > 0 for size in freed.values())
            print(f"{sum(freed.values()):,} bytes of checkpoints of {count} run{'s' * (count != 1)} removed")
    if any(each.problems for each in found):
        raise typer.Exit(1)


def _freed(runs: Path, checked: Checked) -> int:
    """Bytes of saved states that are removed; damaged runs may be repaired from theirs."""
    from fedtide.records.run_directory import RunDirectory
    from fedtide.runs.check import free_states

    return free_states(RunDirectory(runs / checked.name)) if checked.state == "intact" else 0


def _summary(found: list[Checked]) -> str:
    """``3 runs: 1 intact, 1 unfinished, 1 damaged: <name>``."""
    counts = Counter(each.state for each in found)
    states = [f"{counts[state]} {state}" for state in _STATES if counts[state]]
    damaged = [each.name for each in found if each.state == "damaged"]
    names = f": {', '.join(damaged)}" if damaged else ""
    return f"{len(found)} run{'s' * (len(found) != 1)}: {', '.join(states)}{names}"


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
