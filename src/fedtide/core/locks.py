"""Files that one process at a time holds, with a note that names it.

Processes of one machine exclude each other by a lock of the operating system, which ends with its process. A network file
system may grant that lock to several machines, so between machines the owner's note decides, which only one process can
create: it counts until it is removed, or until its heartbeat has stopped for :data:`STALE` seconds.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedtide.core.errors import SettingsError
from fedtide.core.files import is_alive, part_suffix

HEARTBEAT = 10.0
"""Seconds between signs of life of an owner."""

STALE = 120.0
"""Seconds after the last sign of life when another machine takes a lock over; a network file system may show the sign a minute
late."""

_POLL = 0.5  # seconds between looks at another machine's note


class Lock:
    """A lock file; while it is held, ``<lock>.owner`` next to it names its process. A process that dies releases it."""

    def __init__(self, path: Path) -> None:
        self.owner = _owner(path)
        self._file = FileLock(str(path))
        self._released = threading.Event()

    @property
    def is_locked(self) -> bool:
        return self._file.is_locked

    def acquire(self, timeout: float = 0) -> bool:
        """Wait up to ``timeout`` seconds, or with -1 for as long as it takes; whether the lock is held.

        Raises:
            OSError: the file cannot be written.
        """
        deadline = time.monotonic() + timeout if timeout >= 0 else float("inf")
        try:
            self._file.acquire(timeout=timeout)
        except Timeout:
            return False
        try:
            while not _claim(self.owner):
                if time.monotonic() >= deadline:
                    self._file.release()
                    return False
                time.sleep(max(0.0, min(_POLL, deadline - time.monotonic())))
        except BaseException:
            self._file.release()
            raise
        self._released = threading.Event()
        threading.Thread(target=_beat, args=(self.owner, self._released), name="heartbeat", daemon=True).start()
        return True

    def release(self) -> None:
        if not self._file.is_locked:
            return
        self._released.set()
        with suppress(OSError):
            if _is_ours(_facts(self.owner)):
                self.owner.unlink(missing_ok=True)
        self._file.release()


@contextmanager
def held(lock: Path, refusal: str, timeout: float = 0) -> Iterator[None]:
    """Hold a lock file; wait ``timeout`` seconds for another process, or with -1 for as long as it takes.

    Raises:
        SettingsError: another process holds it: ``refusal``, followed by its id, its machine, and since when.
        OSError: the file cannot be written.
    """
    file = Lock(lock)
    if not file.acquire(timeout):
        raise SettingsError(f"{refusal}{_described(_owner(lock))}")
    try:
        yield
    finally:
        file.release()


def is_held_elsewhere(lock: Path) -> bool:
    """Whether a process of another machine holds a lock, as its note says."""
    facts = _facts(_owner(lock))
    return facts is not None and facts["host"] != socket.gethostname() and _age(_owner(lock), time.time()) < STALE


def _owner(lock: Path) -> Path:
    return lock.with_name(f"{lock.name}.owner")


def _claim(owner: Path) -> bool:
    """Leave the note of this process, which holds the lock of its machine; False if another machine's is alive."""
    facts = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %Z")}
    note = owner.with_name(f"{owner.name}{part_suffix()}")
    try:
        note.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
        for _ in range(2):
            if _link(note, owner):
                return True
            other = _facts(owner)
            if other is None or other["host"] == facts["host"]:  # its process is dead, or this machine's lock were held
                note.replace(owner)
                return True
            if _age(owner, note.stat().st_mtime) < STALE:
                return False
            _set_aside(owner)
        return False
    except OSError:  # the lock holds without a note
        return True
    finally:
        with suppress(OSError):
            note.unlink(missing_ok=True)


def _link(note: Path, owner: Path) -> bool:
    """Give a note its name, unless there is one: the operation that also a network file system does for one process only."""
    try:
        owner.hardlink_to(note)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if owner.exists():
            return False
        note.replace(owner)
    return True


def _set_aside(owner: Path) -> None:
    """Remove a stale note, unless another process has replaced it at this moment."""
    aside = owner.with_name(f"{owner.name}.stale{part_suffix()}")
    with suppress(FileNotFoundError):
        before = owner.stat().st_mtime_ns
        owner.rename(aside)
        if aside.stat().st_mtime_ns != before:
            with suppress(OSError):
                owner.hardlink_to(aside)
        aside.unlink()


def _beat(owner: Path, released: threading.Event) -> None:
    while not released.wait(HEARTBEAT):
        with suppress(OSError):
            os.utime(owner)


def _age(owner: Path, now: float) -> float:
    """Seconds since the last sign of life; infinite if there is no note."""
    try:
        return now - owner.stat().st_mtime
    except OSError:
        return float("inf")


def _facts(owner: Path) -> dict[str, Any] | None:
    """``process``, ``host`` and ``since`` of a note, ``None`` if there is none that can be read."""
    try:
        facts = json.loads(owner.read_text(encoding="utf-8"))
        return {"process": int(facts["process"]), "host": str(facts["host"]), "since": str(facts["since"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_ours(facts: dict[str, Any] | None) -> bool:
    return facts is not None and (facts["process"], facts["host"]) == (os.getpid(), socket.gethostname())


def _described(owner: Path) -> str:
    """`` (process 12 on host since ...)``; empty if it is not known yet, or the file was left by a dead process."""
    facts = _facts(owner)
    if facts is None or (facts["host"] == socket.gethostname() and not is_alive(facts["process"])):
        return ""
    return f" (process {facts['process']} on {facts['host']} since {facts['since']})"
