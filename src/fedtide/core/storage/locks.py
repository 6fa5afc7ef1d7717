"""Files that one process at a time holds, with a note that names it.

The lock is the operating system's and ends with its process. Where the file system refuses such locks, the note is the lock,
as git's ``index.lock`` is: that of a dead process of another machine stays until somebody deletes it.
"""

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import is_alive

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_SECOND_LOOK = 0.5  # seconds; at the first one, the note of a dead process of this machine is removed


class Lock:
    """A lock file; while it is held, ``<lock>.owner`` next to it names its process."""

    def __init__(self, path: Path) -> None:
        self._note = path.with_name(f"{path.name}.owner")
        self._file: BaseFileLock = FileLock(path, fallback_to_soft=False)
        self._is_note = False

    @property
    def is_locked(self) -> bool:
        return self._file.is_locked

    def acquire(self, timeout: float = 0) -> bool:
        """Wait up to ``timeout`` seconds, with -1 for as long as it takes; whether the lock is held.

        A file system without locks is not waited for: nobody notices there that an owner has died.
        """
        try:
            self._file.acquire(_SECOND_LOOK if self._is_note else timeout)
        except Timeout:
            return False
        except FileNotFoundError:  # the owner was refused and has removed the folder: begin anew
            return self.acquire(timeout)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            self._file, self._is_note = SoftFileLock(self._note), True
            return self.acquire()
        if not self._is_note:
            with suppress(OSError):  # a full disk: the lock holds without it
                self._note.write_text(f"{os.getpid()}\n{socket.gethostname()}\n")
        return True

    def release(self) -> None:
        if not self.is_locked:
            return
        if not self._is_note:
            with suppress(OSError):
                self._note.unlink()
        self._file.release()

    def owner(self) -> str:
        """`` (process 12 on host since ...)``, and how to remove what it may have left; empty if it does not say who it is."""
        try:
            process, host = self._note.read_text(errors="replace").splitlines()[:2]
            since = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(self._note.stat().st_mtime))
            dead = not is_alive(int(process)) and host == socket.gethostname()
        except (OSError, ValueError):
            return ""
        told = f" (process {process} on {host.partition('?')[0]} since {since})"  # filelock's mark of a container is left out
        if self._is_note:
            return f"{told}; the file system does not support locks; if that process is dead, delete {self._note}"
        return "" if dead else told


@contextmanager
def held(lock: Path, refusal: str, timeout: float = 0) -> Iterator[None]:
    """Hold a lock file; ``timeout`` as in :meth:`Lock.acquire`.

    Raises:
        SettingsError: another process holds it: ``refusal``, its id, its machine, and since when.
        OSError: the file cannot be written.
    """
    file = Lock(lock)
    if not file.acquire(timeout):
        raise SettingsError(f"{refusal}{file.owner()}")
    try:
        yield
    finally:
        file.release()


@contextmanager
def claimed(directory: Path) -> Iterator[bool]:
    """Hold a run directory inside the block; whether it is held, since no other process works on it."""
    lock = Lock(directory / ".lock")
    try:
        free = lock.acquire()
    except OSError:  # nobody can write there
        yield True
        return
    try:
        yield free
    finally:
        lock.release()


def is_held(directory: Path) -> bool:
    """Whether a process is working on a run directory."""
    if not (directory / ".lock").exists():
        return False
    with claimed(directory) as free:
        return not free
