"""Processes of a session: how long they live, and their end."""

import contextlib
import os
import signal
import time
from pathlib import Path


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
