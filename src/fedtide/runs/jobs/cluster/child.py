"""The process that does the jobs of one thread of a Dask worker."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from fedtide.core.errors import SettingsError

_FOREIGN = ("SLURM_NTASKS",)  # variables of a batch job that Lightning would take for its own: the job is the worker's
_PATIENCE = 60.0  # seconds until a network file system shows a new file


@dataclass(frozen=True)
class Program:
    """What a child process does.

    Attributes:
        work: pickled function that does a job. environment: added to the worker's own, which wins.
        folder: current one of the command. beacon: a file in its folder of runs, which the process sees if it shares that.
        per_card: such processes that share a graphics card; 0 to use none.
    """

    work: bytes
    environment: Mapping[str, str]
    folder: Path
    beacon: Path
    per_card: int


def main() -> None:
    """Entry point: the descriptor of the pipe, number of such processes, bytes of memory of each."""
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):  # announce the end of a batch job
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGTERM))
    descriptor, count, memory = map(int, sys.argv[1:])
    connection = Connection(descriptor)
    try:
        program: Program = pickle.loads(connection.recv_bytes())
    except (EOFError, OSError):  # the worker is gone
        return
    own = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    environment = {**program.environment, **own}
    os.environ.update(environment)  # before imports
    problem = _enter(program.folder, program.beacon)

    import torch

    from fedtide.runs.jobs.jobs import serve
    from fedtide.training.resources.memory import available_bytes

    work = pickle.loads(program.work) if problem is None else _refusing(problem)
    free = available_bytes(torch.device("cpu")) // count
    serve(connection, work, environment, count, min(memory, free) if memory else free, program.per_card)
    sys.stdout.flush()
    os._exit(0)  # as multiprocessing's processes do: some libraries report what is not freed at the end


def _enter(folder: Path, beacon: Path) -> str | None:
    """Go to the command's folder; what is wrong with it."""
    deadline = time.monotonic() + _PATIENCE
    while folder.is_dir() and not beacon.exists() and time.monotonic() < deadline:
        time.sleep(1)
    if not beacon.exists():
        host = socket.gethostname()
        return f"{beacon.parent} is not accessible on {host}; a cluster requires this folder on a shared file system"
    os.chdir(folder)
    return None


def _refusing(problem: str) -> Any:
    def refuse(job: Any, ask: Any) -> NoReturn:
        raise SettingsError(problem)

    return refuse


if __name__ == "__main__":
    main()
