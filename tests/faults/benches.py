"""The benches of a campaign."""

import threading
from pathlib import Path

from bench import Bench
from pipeline_kills import SUBJECT, Pipeline
from subjects import BY_NAME


class Benches:
    """Prepares the bench of each command when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root, self._made, self._lock = root, dict[str, Bench | Pipeline](), threading.Lock()

    def of(self, name: str) -> Bench | Pipeline:
        """The bench of a command."""
        with self._lock:
            if name not in self._made:
                root = self._root / name
                self._made[name] = (
                    Pipeline(root) if name == SUBJECT else Bench(BY_NAME[name], root, self._root / "data")
                )
            return self._made[name]
