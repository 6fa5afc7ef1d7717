"""A command as a process with an interpreter of its own: seconds to start, but nothing about it is faked."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class Cold:
    """A command in a session of its own; the same interface as :class:`attempt.Process`."""

    def __init__(self, folder: Path, command: Sequence[str], output: Path, environment: Mapping[str, str]) -> None:
        self.output = output
        with output.open("wb") as stream:
            self._process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **environment}, stdout=stream, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.pid = self._process.pid

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit status, or minus the signal that ended it; None if it has not ended in that time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    @property
    def lines(self) -> list[str]:
        """What it wrote to standard output and standard error."""
        return self.output.read_text(encoding="utf-8", errors="replace").splitlines()


def members(session: int) -> dict[int, bool]:
    """Processes of a session, and whether each is more than a zombie."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, own_session = path.read_text().rpartition(")")[2].split()[:4]
            if int(own_session) == session:
                found[int(path.parent.name)] = state not in "ZX"
    return found


def outlive(session: int, seconds: float) -> list[int]:
    """Processes of a session that still live after some seconds; returns as soon as there are none, nor zombies."""
    deadline = time.monotonic() + seconds
    while (left := members(session)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [pid for pid, lives in left.items() if lives]


def kill_all(session: int) -> None:
    """SIGKILL to all processes of a session."""
    while left := [pid for pid, lives in members(session).items() if lives]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
