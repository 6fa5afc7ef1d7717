"""This process and its machine, as far as the protocols between processes depend on them; a simulator can take their place."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


class System:
    """The real ones: clock, process, locks of the operating system, and what a path has no method for.

    Attributes:
        host: name of the machine. fences: by the path of each lock that this process holds, what raises
            :class:`fedtide.core.errors.TakenOver` once it no longer does.
    """

    def __init__(self) -> None:
        self.host = socket.gethostname()
        self.fences: dict[Path, Callable[[], None]] = {}

    @property
    def process(self) -> int:
        return os.getpid()

    def is_alive(self, process: int) -> bool:
        """Whether a process of this machine is alive."""
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def time(self) -> float:
        """As the times of files."""
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def date(self) -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S %Z")

    def token(self) -> str:
        """A name that nobody else draws."""
        return secrets.token_hex(8)

    def lock(self, path: Path) -> FileLock:
        """A lock between the processes of this machine."""
        return FileLock(str(path))

    def touch(self, path: Path) -> None:
        """Set the time of an existing file to now."""
        os.utime(path)

    def sync(self, path: Path) -> None:
        """Wait until a file, or the names in a folder, are on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def repeat(self, action: Callable[[], None], seconds: float) -> Callable[[], None]:
        """Repeat an action in a thread until the function that is returned is called.

        Raises:
            OSError: no thread can be started.
        """
        stopped = threading.Event()

        def work() -> None:
            while not stopped.wait(seconds):
                action()

        try:
            threading.Thread(target=work, name="heartbeat", daemon=True).start()
        except RuntimeError as error:  # where memory or the number of processes is limited
            raise OSError(f"{error}: too little memory, or too many processes") from error
        return stopped.set


here = System()
