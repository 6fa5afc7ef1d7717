"""``fedtide`` as a real process that dies, or gets a signal, at an exactly chosen moment.

The process is forked off a server that has everything imported, so an attempt costs milliseconds. Between two file
operations nothing on the disk changes, so a moment is a place in the sequence of file operations in the run's folder.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPERATIONS = frozenset({"open", "os.mkdir", "os.remove", "os.rename"})
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["pytest", "fedtide.cli", "fedtide.compare", "fedtide.progress", "sklearn.datasets"])


@dataclass(frozen=True)
class Moment:
    """Right before a file operation: number ``operations`` (from 0) since ``history.csv`` has ``rows`` rows."""

    rows: int
    operations: int = 0
    signal: int = signal.SIGKILL


def rows_of(run: Path) -> int:
    """Rounds on record, whole lines or not."""
    history = run / "history.csv"
    return max(0, history.read_bytes().count(b"\n") - 1) if history.is_file() else 0


class Attempt:
    """One ``fedtide run`` into ``<folder>/runs/<name>``.

    Args:
        folder: its working directory, with a params.yaml.
        arguments: further arguments of the command.
        name: of the run directory.
        moments: when it gets which signal, in order.
        largest: bytes that no file can exceed: a disk that is full.
    """

    def __init__(
        self, folder: Path, *arguments: str, name: str = "run", moments: tuple[Moment, ...] = (), largest: int = 0
    ) -> None:
        self._output = folder / f"{name}.output"
        command = ["run", "-q", "--name", name, *arguments]
        self._process = _context.Process(
            target=_play, args=(folder, command, folder / "runs" / name, moments, largest, self._output), daemon=True
        )
        self._process.start()

    def end(self) -> int:
        """Wait for it; its exit status, minus the signal's number if a signal ended it."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def wait_for_stop(self) -> None:
        """Wait until a SIGSTOP has stopped it."""
        status = Path(f"/proc/{self._process.pid}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "T":
            self._process.join(0.005)
            assert self._process.is_alive()

    def send(self, number: int) -> None:
        """Send it a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    @property
    def lines(self) -> list[str]:
        """What it wrote to standard output and standard error."""
        return self._output.read_text(encoding="utf-8").splitlines()


def _play(folder: Path, command: list[str], run: Path, moments: Any, largest: int, output: Path) -> None:
    from fedtide.cli import main

    os.chdir(folder)
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if largest:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    sys.addaudithook(_Watch(run, list(moments)))
    sys.argv = ["fedtide", *command]
    main()


class _Watch:
    """An audit hook that sends this process its signals."""

    def __init__(self, run: Path, moments: list[Moment]) -> None:
        self.run, self.moments = run, moments
        self.passed = 0
        self.inside = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in OPERATIONS or self.inside or not self.moments:
            return
        place = Path(os.fsdecode(arguments[0])) if isinstance(arguments[0], str | bytes | Path) else Path()
        if self.run not in place.absolute().parents:
            return
        self.inside = True
        due = self.moments[0]
        if rows_of(self.run) >= due.rows:
            self.passed += 1
        if self.passed > due.operations:
            self.passed = 0
            self.moments.pop(0)
            os.kill(os.getpid(), due.signal)
        self.inside = False
