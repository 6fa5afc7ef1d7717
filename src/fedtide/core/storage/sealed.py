"""Files that prove to be whole and name their owner: a SHA-256 of what follows, a line of JSON, then the content."""

import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fedtide.core.storage.files import replacing

_DIGEST = 65  # hex digits and a newline


class _Hashed(io.RawIOBase):
    """Writes to a file, hashes what is written, and keeps an error of the file, which torch would hide."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, hashlib.sha256()
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        self.digest.update(data)
        try:
            self.file.write(data)
        except OSError as error:
            self.failure = error
        return len(data)


@contextmanager
def sealing(path: Path, header: dict[str, Any]) -> Iterator[Any]:
    """A stream for the content of a file that is complete and on the disk afterwards, or absent; its JSON-able header."""
    with replacing(path, durable=True) as part, part.open("wb") as file:
        file.write(b"\n" * _DIGEST)
        hashed = _Hashed(file)
        hashed.write(json.dumps(header, sort_keys=True).encode() + b"\n")
        yield hashed
        if hashed.failure is not None:
            raise hashed.failure
        file.seek(0)
        file.write(hashed.digest.hexdigest().encode())


def read_header(path: Path) -> dict[str, Any] | None:
    """The header of a file that is whole, ``None`` if it is damaged."""
    with path.open("rb") as file:
        expected = file.read(_DIGEST)
        if hashlib.file_digest(file, "sha256").hexdigest().encode() + b"\n" != expected:
            return None
    return peek_header(path)


def peek_header(path: Path) -> dict[str, Any] | None:
    """The header of a file that may be damaged elsewhere, ``None`` if the header itself is no mapping."""
    with path.open("rb") as file:
        file.seek(_DIGEST)
        try:
            header = json.loads(file.readline())
        except ValueError:
            return None
    return header if isinstance(header, dict) else None


def read_content(path: Path) -> bytes:
    """What was written to the stream of :func:`sealing`."""
    with path.open("rb") as file:
        file.seek(_DIGEST)
        file.readline()
        return file.read()
