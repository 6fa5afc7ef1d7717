"""A real Dask scheduler and real workers on the loopback."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from waiting import until


class Cluster:
    """A scheduler and its workers, each in a session of its own, as machines are.

    Args:
        folder: for their logs; also the current one of the workers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        self.workers: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        self.address = until(lambda: file.exists() and file.read_text() and json.loads(file.read_text())["address"])

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker with one thread and no nanny."""
        self._number += 1
        name = ["--name", f"w{self._number}", "--host", "127.0.0.1"]
        options = ("--no-nanny", "--nthreads", "1", "--local-directory", str(self._folder))
        self.workers.append(self._start("worker", self.address, *name, *options))
        return self.workers[-1]

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{what}-{self._number}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", what, *options, "--no-dashboard"],
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def close(self) -> None:
        """Kill everything."""
        for process in (*self.workers, self.scheduler):
            kill_machine(process)


def kill_machine(process: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
    """Send a signal to a process and to all that it has started, as a batch system does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    if number == signal.SIGKILL:
        process.wait()


@contextlib.contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """A cluster with some workers, killed at the end."""
    folder.mkdir()
    machines = Cluster(folder)
    try:
        for _ in range(workers):
            machines.add_worker()
        yield machines
    finally:
        machines.close()


def started(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    """A command in a folder, its output in the file ``output``."""
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "fedtide.cli.main", *arguments],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
            start_new_session=True,
        )


def output_of(folder: Path) -> list[str]:
    """Lines of the command so far."""
    return (folder / "output").read_text().splitlines()
