"""Hashes of files. A hash is remembered with what the file system says of its file, so that a later call is cheap."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedtide.core.storage.files import write_json

_SETTLED = 2 * 10**9
"""Nanoseconds after its last change in which a file's hash is not remembered: another change could leave the same times."""


def content_hashes(files: Iterable[Path], memory: Path) -> dict[str, str]:
    """SHA-256 of each file by its path; empty for a file that does not exist.

    ``memory`` remembers hashes; it can be deleted or lost at any time. A remembered hash counts only while size, inode and the
    times of both the last change of the content and that of the file's entry are exactly the same: the latter is set by the
    system's clock alone, so a date that was put back does not hide a change.
    """
    known, hashes, new = _read(memory), dict[str, str](), dict[str, list[Any]]()
    for file in files:
        name, now = str(file), time.time_ns()
        try:
            stream = file.open("rb")
        except FileNotFoundError:
            hashes[name] = ""
            continue
        with stream:
            state = _state(stream.fileno())
            remembered = known.get(str(file.absolute()))
            if isinstance(remembered, list) and remembered[:-1] == state:
                hashes[name] = remembered[-1]
                continue
            hashes[name] = hashlib.file_digest(stream, "sha256").hexdigest()
            if state == _state(stream.fileno()) and now - max(state[2:4]) > _SETTLED:
                new[str(file.absolute())] = [*state, hashes[name]]
    if new:
        with suppress(OSError):  # a folder that cannot be written only costs time
            write_json(memory, {**known, **new})
    return hashes


def _state(descriptor: int) -> list[int]:
    status = os.fstat(descriptor)
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _read(memory: Path) -> dict[str, Any]:
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
