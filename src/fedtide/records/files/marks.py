"""Marks of record files: how long a file was at some moment, and a hash of that much of it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from fedtide.core.storage.files import naming, sync, write_bytes


class Mark(TypedDict):
    """Length in bytes and SHA-256 of a file's beginning, or of all of it."""

    bytes: int
    sha256: str


Marks = Mapping[str, Mark]
"""Marks of the files of a folder, by name."""


def mark_file(path: Path) -> Mark:
    """Mark of a whole file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def problems(folder: Path, marks: Marks, *, grown: bool = False, read: bool = True) -> list[str]:
    """What is wrong with files that should be as marked, a line each.

    ``grown``: they may have grown since, and begin as marked. ``read``: otherwise only their lengths are compared.
    """
    found = []
    for name, mark in sorted(marks.items()):
        path, size = folder / name, mark["bytes"]
        if not path.is_file():
            found.append(f"{name} is missing")
        elif (own := path.stat().st_size) < size or (own > size and not grown):
            found.append(f"{name} has {own:,} instead of {size:,} bytes")
        elif read and _digest_of_beginning(path, size) != mark["sha256"]:
            found.append(f"{name} was changed")
    return found


class GrowingFiles:
    """Files of one folder that only grow. Their hashes grow along, so a mark costs the same however long they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._hashes: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._unsaved: set[str] = set()
        self._new = {folder}

    def append(self, name: str, content: bytes) -> None:
        """Append to a file, possibly in a subfolder, in one write; a new or empty one is complete or absent.

        Raises:
            OSError: the disk is full (names the file and the bytes that are free) or fails.
        """
        path = self.folder / name
        self.watch(name)
        if self._sizes[name] == 0:
            path.parent.mkdir(exist_ok=True)
            self._new |= {path.parent, self.folder}
            write_bytes(path, content)
        else:
            with naming(path), path.open("ab") as stream:
                stream.write(content)
        self._hashes[name].update(content)
        self._sizes[name] += len(content)
        self._unsaved.add(name)

    def begin(self, name: str) -> None:
        """Let the first :meth:`append` replace a file that may exist."""
        self._hashes[name], self._sizes[name] = hashlib.sha256(), 0

    def watch(self, name: str) -> None:
        """Include a file, which may exist already, in the marks."""
        if name not in self._hashes:
            path = self.folder / name
            content = path.read_bytes() if path.exists() else b""
            self._hashes[name], self._sizes[name] = hashlib.sha256(content), len(content)

    def marks(self) -> dict[str, Mark]:
        """Marks of the files, once all that was appended is on the disk."""
        for name in sorted(self._unsaved):
            with naming(self.folder / name):
                sync(self.folder / name)
        for folder in sorted(self._new):
            sync(folder)
        self._unsaved, self._new = set(), set()
        kept = ((name, size) for name, size in self._sizes.items() if size)
        return {name: {"bytes": size, "sha256": self._hashes[name].hexdigest()} for name, size in kept}


def _digest_of_beginning(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while size > 0 and (piece := stream.read(min(size, 1 << 20))):
            digest.update(piece)
            size -= len(piece)
    return digest.hexdigest()
