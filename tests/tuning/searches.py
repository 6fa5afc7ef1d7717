"""Searches as the tests make them: below one folder, also ones that are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from fedtide.mirror.workspace import Workspace
from fedtide.runs.progress import Watch
from fedtide.settings.params import Params
from fedtide.tuning.study import TuneResult, tune


def search(params: Params, home: Path, log: Callable[[str], None] = lambda _: None) -> TuneResult:
    """Run directories in ``home/runs``, results in ``home/tuning``."""
    return tune(params, Workspace(home / "runs"), home / "tuning", Watch(log))


KILLED = """
import os, signal, sys
from pathlib import Path
from fedtide.mirror.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.runs.progress import Watch
from fedtide.tuning.study import tune
from fedtide.tuning.trial import Pruner

home, workers, rounds = Path(sys.argv[1]), int(sys.argv[2]), [int(sys.argv[3])]

def kill():
    rounds[0] -= 1
    if rounds[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    if workers == 1:
        Pruner.on_train_batch_start = lambda *_: kill()
    params = Params.read(home / "params.yaml", [f"tune.workers={workers}"])
    tune(params, Workspace(home / "runs"), home / "tuning", Watch(lambda _: kill() if workers > 1 else None))
"""


def killed(params: Params, home: Path, workers: int, count: int) -> None:
    """A search in a process of its own that kills itself: after ``count`` rounds, or ``count`` trials with several workers."""
    (home / "params.yaml").write_text(yaml.safe_dump(params.raw))
    (home / "killed.py").write_text(KILLED)
    command = [sys.executable, str(home / "killed.py"), str(home), str(workers), str(count)]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
