"""``fedtide run`` as a real process that gets a signal at an exactly chosen moment.

Between two file operations nothing on the disk changes, so a moment is a place in the sequence of file operations in the
run's directory. The process is forked off a server that has everything imported (see ``server``): an attempt costs tenths
of a second.
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

_OPERATIONS = frozenset({"open", "os.mkdir", "os.remove", "os.rename", "os.truncate"})
_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Moment:
    """Right before file operation number ``operation`` (from 0) since ``history.csv`` has ``rows`` rows."""

    rows: int
    operation: int = 0
    signal: int = signal.SIGKILL


def rows_of(run: Path) -> int:
    """Rounds on record."""
    history = run / "history.csv"
    return max(0, history.read_bytes().count(b"\n") - 1) if history.is_file() else 0


class Attempt:
    """One ``fedtide run`` into ``<folder>/runs/<name>``.

    Args:
        folder: its working directory, with a params.yaml.
        arguments: further arguments of the command.
        name: of the run directory.
        moments: when it gets which signal, in order.
        largest: bytes that a file can have at most, as on a disk that is full; 0 for any.

    Plug-ins below the working directory are found.
    """

    def __init__(
        self, folder: Path, *arguments: str, name: str = "run", moments: tuple[Moment, ...] = (), largest: int = 0
    ) -> None:
        self.run = folder / "runs" / name
        self._output = folder / f"{name}.output"
        command = ["run", "--name", name, *arguments]
        self._process = _context.Process(target=_work, args=(self.run, command, moments, largest, self._output))
        self._process.start()

    def end(self) -> int:
        """Wait for it; its exit status, or minus the signal that ended it."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    @property
    def process(self) -> int:
        """Its id."""
        return self._process.pid or 0

    def wait_for(self, rows: int) -> None:
        """Wait until ``rows`` rounds are on record."""
        while rows_of(self.run) < rows:
            self._process.join(0.005)
            assert self._process.is_alive(), self.lines

    def resume(self) -> None:
        """Let it continue after it was stopped by SIGSTOP, to its end."""
        while self._process.is_alive():
            os.kill(self.process, signal.SIGCONT)
            self._process.join(0.05)

    @property
    def lines(self) -> list[str]:
        """What it wrote to standard output and standard error."""
        return self._output.read_text(encoding="utf-8").splitlines()


def _work(run: Path, command: list[str], moments: tuple[Moment, ...], largest: int, output: Path) -> None:
    from fedtide.cli.main import main

    os.chdir(run.parents[1])
    os.environ["FEDTIDE_PLUGINS"] = "."
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(written, 1)
    os.dup2(written, 2)
    if largest:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    sys.addaudithook(_Watch(run, moments))
    sys.argv = ["fedtide", *command]
    main()


class _Watch:
    """An audit hook that sends its own process the signals."""

    def __init__(self, run: Path, moments: tuple[Moment, ...]) -> None:
        self._run, self._moments = run, list(moments)
        self._passed = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _OPERATIONS and self._moments and self._run in Path(str(arguments[0])).absolute().parents:
            due, watched = self._moments[0], self._moments
            self._moments = []  # what this hook opens itself does not count
            self._passed += rows_of(self._run) >= due.rows
            self._moments = watched
            if self._passed > due.operation:
                self._passed = 0
                self._moments.pop(0)
                os.kill(os.getpid(), due.signal)
