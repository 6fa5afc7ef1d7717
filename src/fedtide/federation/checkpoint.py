"""Saved state: two generations, each hashed, written under a temporary name and renamed."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any, BinaryIO

import torch

from fedtide.core.errors import SettingsError
from fedtide.core.files import replacing

_HEADER = 65  # hex digest and a newline


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


def save(folder: Path, round_: int, values: dict[str, Any], keep: int = 2) -> None:
    """Write ``state-<round>.pt`` and drop all but the ``keep`` newest generations."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"state-{round_:08d}.pt"
    with replacing(path, durable=True) as part, part.open("wb") as file:
        file.write(b"\n" * _HEADER)
        hashed: Any = _Hashed(file)
        torch.save(values, hashed)  # streamed in pieces: memories may exceed main memory
        if hashed.failure is not None:
            raise hashed.failure
        file.seek(0)
        file.write(hashed.digest.hexdigest().encode())
    for old in generations(folder)[keep:]:
        old.unlink()


def generations(folder: Path) -> list[Path]:
    """Saved states, newest first."""
    return sorted(folder.glob("state-*.pt"), reverse=True)


def load(folder: Path) -> tuple[dict[str, Any] | None, list[Path]]:
    """The newest intact state, and the damaged files that were skipped; ``None`` if nothing was ever saved.

    Raises:
        SettingsError: states exist, but none is intact: a run never silently starts over.
    """
    damaged: list[Path] = []
    for path in generations(folder):
        content = path.read_bytes()
        header, payload = content[:_HEADER], content[_HEADER:]
        if hashlib.sha256(payload).hexdigest().encode() + b"\n" != header:
            damaged.append(path)
            continue
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True), damaged
    if damaged:
        names = ", ".join(path.name for path in damaged)
        raise SettingsError(f"{folder}: no saved state is intact ({names}); delete the run's folder to start it again")
    return None, []
