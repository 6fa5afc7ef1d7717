"""The process that does the jobs of one thread of a Dask worker."""

import os
import pickle
import signal
import socket
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from fedtide.core.errors import SettingsError

_PATIENCE = 60.0  # seconds until a network file system shows a new file


def main() -> None:
    """Entry point: the descriptor of the pipe, number of such processes, bytes of memory of each.

    Through the pipe come the pickled function that does a job; variables of the command's environment, of which the worker's
    own win; the command's current folder; a file in its folder of runs, which this process sees if it shares that; the number
    of such processes that share a GPU, 0 to use none; and then jobs.
    """
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):  # announce the end of a batch job
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGTERM))
    descriptor, count, memory = map(int, sys.argv[1:])
    connection = Connection(descriptor)
    try:
        pickled, variables, folder, beacon, per_card = pickle.loads(connection.recv_bytes())
    except (EOFError, OSError):  # the worker is gone
        return
    environment = {**variables, **os.environ}
    os.environ.update(environment)  # before imports
    problem = _enter(folder, beacon)

    import torch

    from fedtide.runs.jobs.jobs import serve
    from fedtide.training.resources.memory import available_bytes

    work = pickle.loads(pickled) if problem is None else _refusing(problem)
    free = available_bytes(torch.device("cpu")) // count
    serve(connection, work, environment, count, min(memory, free) if memory else free, per_card)
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
