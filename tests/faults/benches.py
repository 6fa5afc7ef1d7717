"""The benches of a campaign."""

from __future__ import annotations

import threading
from pathlib import Path

from bench import Bench
from pipeline_kills import SUBJECT, Pipeline
from schedules import WORLDS, Schedules
from subjects import BY_NAME


class Benches:
    """Prepares the bench of each command when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root, self._made, self._lock = root, dict[str, Bench | Pipeline | Schedules](), threading.Lock()

    def of(self, name: str) -> Bench | Pipeline | Schedules:
        """The bench of a command."""
        with self._lock:
            if name not in self._made:
                root = self._root / name
                if name in WORLDS:
                    self._made[name] = Schedules(name, root)
                elif name == SUBJECT:
                    self._made[name] = Pipeline(root)
                else:
                    self._made[name] = Bench(BY_NAME[name], root, self._root / "data")
            return self._made[name]
