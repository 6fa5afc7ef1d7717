"""Files that one process at a time holds, with a note that names it.

Processes of one machine exclude each other by a lock of the operating system, which ends with its process. A network file
system may grant that lock to several machines, so between machines the owner's note decides, which only one process can
create: it counts until it is removed, or until its heartbeat has stopped for :data:`STALE` seconds.

An owner may be paused for longer than that, and wake up when another process has its folder. So whatever it writes below that
folder is fenced (:func:`fedtide.core.files.fence`): it opens what it writes to, looks whether the note is still its own, and
writes. Who takes over removes all temporary files, and writes growing files anew under their names, before it relies on
any: what the old owner opened before that leads nowhere, and what it opens after that is not written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import Timeout

from fedtide.core import system
from fedtide.core.errors import SettingsError, TakenOver
from fedtide.core.files import part_suffix, remove_stale_parts

HEARTBEAT = 10.0
"""Seconds between signs of life of an owner."""

STALE = 120.0
"""Seconds after the last sign of life when another machine takes a lock over; a network file system may show the sign a minute
late."""

_POLL = 0.5  # seconds between looks at another machine's note
_TRIES = 4  # to leave a note, when other processes come and go


class Lock:
    """A lock file; while it is held, ``<lock>.owner`` next to it names its process. A process that dies releases it."""

    def __init__(self, path: Path) -> None:
        self.path, self.owner = path, _owner(path)
        self._file = system.here.lock(path)
        self._note = ""  # empty where none can be written: the lock holds without it

    @property
    def is_locked(self) -> bool:
        return self._file.is_locked

    def acquire(self, timeout: float = 0) -> bool:
        """Wait up to ``timeout`` seconds, or with -1 for as long as it takes; whether the lock is held.

        Raises:
            OSError: the file cannot be written, or no thread can be started.
        """
        here = system.here
        deadline = here.monotonic() + timeout if timeout >= 0 else float("inf")
        try:
            self._file.acquire(timeout=timeout)
        except Timeout:
            return False
        try:
            while not self._claim():
                if here.monotonic() >= deadline:
                    self._file.release()
                    return False
                here.sleep(max(0.0, min(_POLL, deadline - here.monotonic())))
                if not self.path.parent.is_dir():  # its owner was refused and left nothing: begin anew
                    self._file.release()
                    return self.acquire(timeout if timeout < 0 else max(0.0, deadline - here.monotonic()))
            self._stop = here.repeat(self._beat, HEARTBEAT)  # may fail
        except BaseException:
            self._file.release()
            raise
        here.fences[self.path] = self.check
        remove_stale_parts(self.owner)  # of processes that were killed while they took the lock or gave it back
        return True

    def release(self) -> None:
        if not self._file.is_locked:
            return
        self._stop()
        system.here.fences.pop(self.path, None)
        with suppress(OSError):
            if self._is_ours():
                _set_aside(self.owner, self._note)
        self._file.release()

    def check(self) -> None:
        """Raise :class:`TakenOver` if another process has taken the lock for abandoned, and has it now or had it since."""
        if not self._is_ours() and not _text(self.owner):
            system.here.sleep(_POLL)  # who looks at a note more closely sets it aside for a moment
        if not self._is_ours():
            raise TakenOver(
                f"{self.path.parent}: another process has taken over{_described(self.owner)}, since this one had shown no sign "
                f"of life for {STALE:.0f} s; nothing more is written there"
            )

    def _is_ours(self) -> bool:
        return not self._note or _text(self.owner) == self._note

    def _beat(self) -> None:
        with suppress(OSError):
            if self._is_ours():
                system.here.touch(self.owner)

    def _claim(self) -> bool:
        """Leave the note of this process, which holds the lock of its machine; False if another machine's is alive."""
        here = system.here
        facts = {"process": here.process, "host": here.host, "since": here.date(), "claim": here.token()}
        self._note = json.dumps(facts, indent=2, sort_keys=True) + "\n"
        note = self.owner.with_name(f"{self.owner.name}{part_suffix()}")
        try:
            for _ in range(_TRIES):
                with suppress(FileNotFoundError):  # a new owner has removed it: look again
                    note.write_text(self._note)
                    if _link(note, self.owner):
                        return True
                    last, seen = self.owner.stat().st_mtime, _text(self.owner)
                    other = _facts(seen)
                    # Of this machine, its process is dead, or the machine's lock were held.
                    if other is not None and other["host"] != here.host and note.stat().st_mtime - last < STALE:
                        return False
                    _set_aside(self.owner, seen, last)
            return False
        except OSError:
            self._note = ""
            return True
        finally:
            with suppress(OSError):
                note.unlink(missing_ok=True)


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
    facts = _facts(_text(_owner(lock)))
    return facts is not None and facts["host"] != system.here.host and _age(_owner(lock), system.here.time()) < STALE


def _owner(lock: Path) -> Path:
    return lock.with_name(f"{lock.name}.owner")


def _link(note: Path, owner: Path) -> bool:
    """Give a note its name, unless there is one: the operation that also a network file system does for one process only."""
    try:
        owner.hardlink_to(note)
    except FileExistsError:
        return False
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        if owner.exists():
            return False
        note.replace(owner)
    return True


def _set_aside(owner: Path, seen: str | None, last: float | None = None) -> None:
    """Remove the note that was seen, unless it is another by now, or there was a sign of life after the ``last``."""
    aside = owner.with_name(f"{owner.name}.aside{part_suffix()}")
    with suppress(FileNotFoundError):
        owner.rename(aside)
        if _text(aside) != seen or last not in (None, aside.stat().st_mtime):
            with suppress(OSError):
                owner.hardlink_to(aside)
        aside.unlink()


def _age(owner: Path, now: float) -> float:
    """Seconds since the last sign of life; infinite if there is no note."""
    try:
        return now - owner.stat().st_mtime
    except OSError:
        return float("inf")


def _text(owner: Path) -> str | None:
    """A note, ``None`` if there is none."""
    try:
        return owner.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _facts(note: str | None) -> dict[str, Any] | None:
    """``process``, ``host`` and ``since`` of a note, ``None`` if it cannot be read."""
    try:
        facts = json.loads(note or "")
        return {"process": int(facts["process"]), "host": str(facts["host"]), "since": str(facts["since"])}
    except (ValueError, KeyError, TypeError):
        return None


def _described(owner: Path) -> str:
    """`` (process 12 on host since ...)``; empty if it is not known yet, or the file was left by a dead process."""
    facts = _facts(_text(owner))
    if facts is None or (facts["host"] == system.here.host and not system.here.is_alive(facts["process"])):
        return ""
    return f" (process {facts['process']} on {facts['host']} since {facts['since']})"
