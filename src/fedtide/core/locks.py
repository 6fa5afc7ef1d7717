"""Files that one process at a time holds, and that say which one."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedtide.core.errors import SettingsError
from fedtide.core.files import is_alive, write_json


@contextmanager
def held(lock: Path, refusal: str, timeout: float = 0) -> Iterator[None]:
    """Hold a lock file; meanwhile ``<lock>.owner`` next to it names this process. A process that dies releases it.

    Args:
        lock: the file, in a folder that exists.
        refusal: what another process is doing, e.g. ``runs/x: another process is working on this run``.
        timeout: seconds to wait for that process; -1 for as long as it takes.

    Raises:
        SettingsError: another process holds it: ``refusal``, followed by its id, its machine, and since when.
        OSError: the file cannot be written.
    """
    file, owner = FileLock(str(lock), timeout=timeout), lock.with_name(f"{lock.name}.owner")
    try:
        file.acquire()
    except Timeout:
        raise SettingsError(f"{refusal}{_described(owner)}") from None
    try:
        facts = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %Z")}
        with suppress(OSError):  # the lock holds without it
            write_json(owner, facts)
        yield
    finally:
        with suppress(OSError):
            owner.unlink(missing_ok=True)
        file.release()


def _described(owner: Path) -> str:
    """`` (process 12 on host since ...)``; empty if it is not known yet, or the file was left by a dead process."""
    try:
        facts = json.loads(owner.read_text(encoding="utf-8"))
        process, host, since = int(facts["process"]), str(facts["host"]), str(facts["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if host == socket.gethostname() and not is_alive(process):
        return ""
    return f" (process {process} on {host} since {since})"
