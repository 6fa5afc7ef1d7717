"""Faults inside the process under test: it gets a signal, or tears a write, at an exactly chosen file operation.

Between two operations nothing on the disk changes, so a moment is a place in the sequence of the operations that change
something below one folder. An audit hook sees all that Python code does, in libraries too; SQLite's own writes are C code
and are met by random times and by torn writes alone. The hook is inherited by processes that are forked.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FSYNC = "os.fsync"  # Python has no audit event of this name, so its function is wrapped
_CHANGING = ("mkdir", "rename", "remove", "rmdir", "link", "symlink", "truncate")
COUNTED = frozenset({"open", "sqlite3.connect", FSYNC, *(f"os.{name}" for name in _CHANGING)})
LEADER = "leader"
"""Role of the process that was started; those that it starts are ``worker-0``, ``worker-1``, ... as they first write."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_real_fsync = os.fsync


@dataclass(frozen=True)
class Moment:
    """Operation number ``operation`` (from 0) of a process since ``history.csv`` in the folder has ``rows`` rows.

    Attributes:
        place: ``before`` it, ``after`` it, or ``torn``: the kernel kills the process (SIGXFSZ) in the first write from there
            on that would take a file beyond ``size`` more bytes than it has.
        everyone: the signal goes to the whole process group.
        process: role of the process.
    """

    rows: int = 0
    operation: int = 0
    signal: int = signal.SIGKILL
    place: str = "before"
    everyone: bool = False
    process: str = LEADER
    size: int = 0


Observer = Callable[[str, str, tuple[Any, ...]], None]
"""Called before each operation with event, path and the event's arguments."""


class Injection:
    """The audit hook of a process and of those forked from it.

    Args:
        folder: whose operations count.
        moments: when which signal is sent; each process obeys those of its role, in order.
        trace: folder for ``operations.jsonl``, a line per operation, the numbers of the workers, and ``struck`` once a moment
            has come; None for none of them.
        observer: see :data:`Observer`.
    """

    def __init__(
        self,
        folder: Path,
        moments: tuple[Moment, ...] = (),
        trace: Path | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._folder, self._moments, self._trace = f"{folder.absolute()}/", list(moments), trace
        self._role: str | None = LEADER
        self._observer = observer
        self._passed = self._total = 0

    def install(self) -> None:
        """Begin to count."""
        self._inside = threading.local()
        os.register_at_fork(after_in_child=self._begin_child)
        os.fsync = _audited_fsync
        sys.addaudithook(self)

    def _begin_child(self) -> None:
        self._role, self._passed, self._total = None, 0, 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in COUNTED or getattr(self._inside, "hook", False):
            return
        self._inside.hook = True
        try:
            path = _changed_path(event, arguments)
            if path is not None and path.startswith(self._folder):
                self._count(event, path, arguments)
        finally:
            self._inside.hook = False

    def _count(self, event: str, path: str, arguments: tuple[Any, ...]) -> None:
        if self._role is None:
            self._role = f"worker-{self._next_worker()}"
        if self._observer is not None:
            self._observer(event, path, arguments)
        if self._trace is not None:
            _append_line(self._trace / "operations.jsonl", [self._role, self._total, event, path[len(self._folder) :]])
        self._total += 1
        due = next((moment for moment in self._moments if moment.process == self._role), None)
        if due is None:
            return
        self._passed += not due.rows or rows_of(Path(self._folder)) >= due.rows
        if self._passed > due.operation:
            self._passed = 0
            self._moments.remove(due)
            if self._trace is not None:
                (self._trace / "struck").touch()
            _strike(due, event, path, arguments)

    def _next_worker(self) -> int:
        if self._trace is None:
            return 0
        number = 0
        while True:
            try:
                (self._trace / f"worker-{number}").touch(exist_ok=False)
            except FileExistsError:
                number += 1
            else:
                return number


def rows_of(run: Path) -> int:
    """Rounds on record."""
    history = run / "history.csv"
    return max(0, history.read_bytes().count(b"\n") - 1) if history.is_file() else 0


def _audited_fsync(descriptor: Any) -> None:
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    sys.audit(FSYNC, str(Path(f"/proc/self/fd/{number}").readlink()))
    _real_fsync(number)


def _changed_path(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The absolute path that an operation changes; None if it changes nothing, or only takes a lock."""
    path = arguments[1 if event in ("os.symlink", "os.link") else 0]
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
        return None
    if isinstance(path, int):
        path = f"/proc/self/fd/{path}"
    name = os.fsdecode(path)
    if event == "open" and name.endswith(".lock"):  # how often it is tried is a matter of time
        return None
    with contextlib.suppress(OSError, IndexError):
        relative = event in ("os.remove", "os.rmdir", "os.mkdir") and not name.startswith("/")
        if relative and arguments[-1] not in (-1, None):
            name = f"{Path(f'/proc/self/fd/{arguments[-1]}').readlink()}/{name}"
    return os.path.abspath(name)  # noqa: PTH100  # pathlib would resolve less and cost more


def _append_line(path: Path, values: list[Any]) -> None:
    """One write, so that lines of several processes do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{json.dumps(values)}\n".encode())
    os.close(descriptor)


def _strike(moment: Moment, event: str, path: str, arguments: tuple[Any, ...]) -> None:
    if moment.place == "torn" and event == "open":
        whole = arguments[2] & os.O_TRUNC or not Path(path).is_file()
        limit = (0 if whole else Path(path).stat().st_size) + moment.size
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            return
    if moment.place != "before":
        sys.setprofile(lambda frame, kind, _: _send(moment) if frame.f_code.co_filename != __file__ else None)
        return
    _send(moment)


def _send(moment: Moment) -> None:
    sys.setprofile(None)
    if moment.everyone:
        os.killpg(os.getpgrp(), moment.signal)
    os.kill(os.getpid(), moment.signal)
