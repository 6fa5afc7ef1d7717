"""Simulated schedules of the protocols between processes (``tests/simulation``): a case is a thousand of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import Verdict

WORLDS = {"shared": 80, "unshared": 20}
"""Cases of machines that share a folder, and of a cluster that does not."""

_MANY = Path(__file__).parents[1] / "simulation" / "many.py"
_SCHEDULES = 1000


def cases(kills: int) -> Iterator[tuple[str, int]]:
    """The same for any number of kills."""
    yield from ((name, number) for name, count in WORLDS.items() for number in range(count))


class Schedules:
    """In place of a command's bench."""

    def __init__(self, world: str, root: Path) -> None:
        self.world, self._root = world, root

    def folder(self, name: str) -> Path:
        """Nothing is written there."""
        folder = self._root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def execute(bench: Schedules, number: int, seed: int, folder: Path) -> Verdict:
    """Seeds do not overlap between cases, nor between seeds of a campaign; a finding begins with the schedule's own."""
    first = (seed * max(WORLDS.values()) + number) * _SCHEDULES
    command = [sys.executable, str(_MANY), bench.world, str(first), str(_SCHEDULES)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Verdict(kills=found["faults"], resumed=True, changed=found["problems"], plan=[first, found["steps"]])
