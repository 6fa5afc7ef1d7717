"""``fedtide check``: whether the records of all runs of a folder are what the runs wrote."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtide.cli.options import Json

if TYPE_CHECKING:
    from fedtide.runs.check import Checked


_STATES = ("intact", "unfinished", "running", "damaged")


def check(
    runs: Annotated[Path, typer.Argument(help="Folder of run directories.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Verify the records of all runs of a folder: nothing missing, nothing changed. Exit status 1 if a run is damaged."""
    from fedtide.runs.check import check as verify

    found = list(verify(runs))
    if as_json:
        print(json.dumps([asdict(each) for each in found]))
    else:
        for each in found:
            for problem in each.problems:
                print(f"{each.name}: {problem}")
        print(_summary(found))
    if any(each.problems for each in found):
        raise typer.Exit(1)


def _summary(found: list[Checked]) -> str:
    """``3 runs: 1 intact, 1 unfinished, 1 damaged: <name>``, and the same of the shared pilots if there are any."""
    parts = []
    for noun, pilots in (("run", False), ("shared pilot", True)):
        group = [each for each in found if each.is_pilot == pilots]
        counts = Counter(each.state for each in group)
        states = [f"{counts[state]} {state}" for state in _STATES if counts[state]]
        damaged = [each.name for each in group if each.state == "damaged"]
        if group:
            names = f": {', '.join(damaged)}" if damaged else ""
            parts.append(f"{len(group)} {noun}{'s' * (len(group) != 1)}: {', '.join(states)}{names}")
    return "; ".join(parts)
