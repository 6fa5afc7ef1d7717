"""Files that are complete or absent: written under a temporary name, then renamed."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_HOST = re.sub(r"[^\w-]", "-", socket.gethostname())
_PART = re.compile(rf"\.{re.escape(_HOST)}-(\d+)\.part$")


@contextmanager
def replacing(path: Path, durable: bool = False) -> Iterator[Path]:
    """A temporary name next to ``path``; what is written there replaces ``path`` at the end, or vanishes after an error.

    Temporary files of ``path`` that dead processes of this machine have left behind are removed.

    Args:
        path: of the file.
        durable: wait until the content, and then the new name, would survive a power failure.

    Raises:
        OSError: the file cannot be written; the error names it, and a full disk's also the free bytes.
    """
    part = path.with_name(f"{path.name}.{_HOST}-{os.getpid()}.part")
    with naming(path):
        try:
            remove_stale_parts(path)
            yield part
            if durable:
                sync(part)
            part.replace(path)
            if durable:
                sync(path.parent)
        finally:
            part.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file."""
    with replacing(path) as part:
        part.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a file in UTF-8."""
    write_bytes(path, content.encode())


def write_json(path: Path, values: Any) -> None:
    """Write a file as sorted, indented JSON."""
    write_text(path, json.dumps(values, indent=2, sort_keys=True) + "\n")


def remove_stale_parts(path: Path) -> None:
    """Remove temporary files of ``path`` whose processes are dead."""
    with suppress(FileNotFoundError):
        for part in path.parent.iterdir():
            found = _PART.search(part.name) if part.name.startswith(f"{path.name}.") else None
            if found and not is_alive(int(found[1])):
                part.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the disk name ``path`` and, if the disk is full, the bytes that are free."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            free = f"; {shutil.disk_usage(path.parent).free:,} bytes free" if path.parent.is_dir() else ""
            raise OSError(error.errno, f"{error.strerror}{free}", str(path)) from None
        raise


def is_alive(process: int) -> bool:
    """Whether a process of this machine is alive."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
