"""Files that are complete or absent: written under a temporary name, then renamed. JSON of values, and its hash."""

import glob
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError

_PART = re.compile(r"\.([\w-]+)-(\d+)\.part$")


@contextmanager
def replacing(path: Path, durable: bool = False) -> Iterator[Path]:
    """A temporary name next to ``path``; what is written there replaces ``path`` at the end, or vanishes after an error.

    What dead processes of this machine have left of ``path`` is removed. With ``durable``, wait until the content, and then
    the new name, would survive a power failure.

    Raises:
        OSError: the file cannot be written; the error names it, and a full disk's also the free bytes.
    """
    part = path.with_name(f"{path.name}{part_suffix()}")
    with naming(path):
        try:
            remove_dead_parts(path.parent, f"{glob.escape(path.name)}.*")
            yield part
            if durable:
                sync(part)
            part.replace(path)
            if durable:
                sync(path.parent)
        finally:
            part.unlink(missing_ok=True)


def part_suffix() -> str:
    """End of the names of temporary files of this process."""
    return f".{_host()}-{os.getpid()}.part"


def _host() -> str:
    return re.sub(r"[^\w-]", "-", socket.gethostname())


def is_alive(process: int) -> bool:
    """Whether a process of this machine is alive."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def write_bytes(path: Path, content: bytes, durable: bool = False) -> None:
    """Write a file; ``durable`` as in :func:`replacing`."""
    with replacing(path, durable) as part:
        part.write_bytes(content)


def write_text(path: Path, content: str, durable: bool = False) -> None:
    """Write a file in UTF-8."""
    write_bytes(path, content.encode(), durable)


def write_json(path: Path, values: Any, durable: bool = False) -> None:
    """Write a file as sorted, indented JSON."""
    write_text(path, json.dumps(values, indent=2, sort_keys=True) + "\n", durable)


def canonical_json(values: Any) -> str:
    """JSON with sorted keys and no spaces: equal values, equal text."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def short_hash(values: Any) -> str:
    """Twelve hex digits of a JSON-able value."""
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()[:12]


def read_text(path: Path) -> str:
    """Content of a file in UTF-8; a SettingsError if it is something else."""
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is damaged: byte {error.start:,} is not UTF-8") from None


def remove_dead_parts(folder: Path, names: str = "**/*") -> None:
    """Remove temporary files in or below a folder, of files with these names, whose processes on this machine are dead."""
    for part in folder.glob(f"{names}.part"):
        found = _PART.search(part.name)
        if found is not None and found[1] == _host() and not is_alive(int(found[2])):
            part.unlink(missing_ok=True)


def remove_all_parts(folder: Path) -> None:
    """Remove the temporary files below a folder that this process alone may write to, but those of others alive here.

    Containers use process ids and host names again, so this process's own id marks a stale file as well.
    """
    for part in folder.rglob("*.part"):
        found = _PART.search(part.name)
        if found and (found[1] != _host() or int(found[2]) == os.getpid() or not is_alive(int(found[2]))):
            part.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder and those around it, if they do not exist, and wait until their names are on the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


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


def folder(path: Path) -> Path:
    """A writable folder, created if missing; a SettingsError if that fails."""
    try:
        creatable(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{path}: cannot create this folder ({error.strerror})") from None
    return path


def creatable(path: Path) -> Path:
    """A folder that can be written, or created later; a SettingsError if it cannot."""
    there = next(known for known in (path, *path.absolute().parents) if known.exists())
    if not there.is_dir():
        raise SettingsError(f"{path}: cannot create this folder ({there} is a file)")
    if not os.access(there, os.W_OK):
        raise SettingsError(f"{path}: this folder cannot be written")
    return path


@contextmanager
def creating(path: Path) -> Iterator[None]:
    """A SettingsError in the block removes this folder and those around it, as far as they are new and empty."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    except SettingsError:
        for new in missing:
            with suppress(OSError):
                new.rmdir()
        raise
