"""Where the files of a dataset come from: the raw folder, a mirror, the network, in this order."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from filelock import FileLock

from fedtide.core.errors import SettingsError
from fedtide.core.files import replacing, sync
from fedtide.world.download import download

MIRROR_VARIABLE = "FEDTIDE_MIRROR"


@dataclass(frozen=True)
class Resource:
    """One file of a dataset.

    Attributes:
        file: its name in the raw folder. A pattern (``all_data_*.json``) matches one or more files.
        urls: addresses, tried in turn; none if the file can only be placed by hand.
        checksum: ``md5:<hex>`` or ``sha256:<hex>`` of the file; empty if unknown.
        alternatives: other names, for the same content in another format; their checksums are unknown, so only the reader
            checks them.
    """

    file: str
    urls: tuple[str, ...] = ()
    checksum: str = ""
    alternatives: tuple[str, ...] = ()

    def present(self, raw: Path) -> list[Path]:
        """The files of this resource in the raw folder, sorted by name; empty if there are none."""
        return next(filter(None, (sorted(raw.glob(name)) for name in (self.file, *self.alternatives))), [])

    def paths(self, raw: Path) -> list[Path]:
        """The same, at least one; a SettingsError if there are none."""
        found = self.present(raw)
        if not found:
            raise SettingsError(f"{raw}: {self.file} is missing; {self.request(raw)}")
        return found

    def path(self, raw: Path) -> Path:
        """The only file of this resource in the raw folder; raises as :meth:`paths`."""
        return self.paths(raw)[0]

    def request(self, raw: Path) -> str:
        """What the user can do to provide it."""
        known = f" ({self.checksum.replace(':', ' ')})" if self.checksum else ""
        return f"place {self.file}{known} in {raw} or set data.mirror to a folder that holds it"

    def check(self, path: Path) -> None:
        """Raise :class:`OSError` with the reason if ``path`` cannot be this file."""
        with path.open("rb") as content:
            if content.read(512).lstrip().lower().startswith((b"<!doctype html", b"<html")):
                raise OSError("is a web page instead of data")
            if self.checksum:
                algorithm, expected = self.checksum.split(":")
                content.seek(0)
                actual = hashlib.file_digest(content, algorithm).hexdigest()
                if actual != expected:
                    raise OSError(f"has {algorithm} {actual}, expected {expected}")


def fetch(name: str, resources: Sequence[Resource], root: Path, mirror: Path | None = None) -> Path:
    """Collect all files of a dataset in ``<root>/<name>/raw``, and return that folder.

    A file gets its name there only when it is complete and its checksum is right. A second process that needs the same
    dataset waits for the first. ``mirror`` is searched recursively before the network is tried, by default the folder in the
    environment variable ``FEDTIDE_MIRROR``; files there may be compressed (``<file>.gz``).

    Raises:
        SettingsError: a file is unavailable, or the one in the raw folder is wrong. The message lists what was tried, what
            was expected and what to place where.
    """
    raw = root / name / "raw"
    if resources:
        make_folder(raw)
        with FileLock(root / name / "raw.lock"):
            for resource in resources:
                _remove_leftovers(resource, raw)
                _obtain(name, resource, raw, mirror)
    return raw


def make_folder(folder: Path) -> None:
    """Create a folder below ``data.root``; a SettingsError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"data.root: cannot create {folder} ({error.strerror})") from error


def _remove_leftovers(resource: Resource, raw: Path) -> None:
    """Remove what dead processes began, but for a download that can be resumed; nobody else writes while the lock is held."""
    resumable = raw / f"{resource.file}.part" if resource.checksum and not resource.present(raw) else None
    for name in (resource.file, *resource.alternatives):
        for part in (*raw.glob(f"{name}.part"), *raw.glob(f"{name}.*.part")):
            if part != resumable:
                part.unlink()


def _obtain(name: str, resource: Resource, raw: Path, mirror: Path | None) -> None:
    present = resource.present(raw)
    for path in present:
        if path.name in resource.alternatives:
            continue
        try:
            resource.check(path)
        except OSError as error:
            raise SettingsError(f"data {name!r}: {path} {error}; delete it, or {resource.request(raw)}") from error
    if present:
        return
    reasons = []
    for attempt in itertools.chain(_from_mirror(resource, raw, mirror), _from_network(resource, raw)):
        if not attempt:
            return
        reasons.append(attempt)
    why = "; ".join(reasons) or "there is no address to download it from"
    raise SettingsError(f"data {name!r}: cannot get {resource.file}: {why}; {resource.request(raw)}")


def _from_mirror(resource: Resource, raw: Path, mirror: Path | None) -> Iterator[str]:
    """Attempts, one per folder of the mirror that has the file: why it failed, or an empty string on success."""
    chosen = mirror or os.environ.get(MIRROR_VARIABLE)
    if not chosen:
        return
    folder = Path(chosen)
    if not folder.is_dir():
        raise SettingsError(f"data.mirror: {folder} is not a folder")
    compressed = () if resource.file.endswith(".gz") else (f"{resource.file}.gz",)
    for pattern in (resource.file, *compressed, *resource.alternatives):
        found = sorted((path for path in folder.rglob(pattern) if path.is_file()), key=lambda path: (path.parent, path))
        for _, together in itertools.groupby(found, key=lambda path: path.parent):
            try:
                for path in together:
                    plain = path.name.removesuffix(".gz") if pattern in compressed else path.name
                    _copy(path, raw / plain, None if pattern in resource.alternatives else resource)
            except (OSError, EOFError) as error:
                yield f"{path} {error}"
            else:
                yield ""


def _from_network(resource: Resource, raw: Path) -> Iterator[str]:
    """Attempts as in :func:`_from_mirror`, one per address; one more if a resumed download turns out to be wrong."""
    part = raw / f"{resource.file}.part"
    for url in resource.urls:
        for _ in range(1 + part.exists()):
            try:
                _download(url, part, resource)
            except (OSError, HTTPException) as error:
                yield f"{url} {' '.join(str(error).split())}"
            else:
                part.replace(raw / resource.file)
                yield ""
            if part.exists():
                break


def _download(url: str, part: Path, resource: Resource) -> None:
    """Download and check. What is wrong is removed; so is a part that no checksum could tell from one of another file."""
    try:
        download(url, part)
    except (OSError, HTTPException):
        if not resource.checksum:
            part.unlink(missing_ok=True)
        raise
    try:
        resource.check(part)
    except OSError:
        part.unlink()
        raise
    sync(part)


def _copy(source: Path, target: Path, resource: Resource | None) -> None:
    """Copy, unpacking ``.gz`` if only the source has that ending, and check against ``resource``."""
    unpack = source.suffix == ".gz" and target.suffix != ".gz"
    with replacing(target, durable=True) as half:
        with gzip.open(source) if unpack else source.open("rb") as reading, half.open("wb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 20)
        if resource is not None:
            resource.check(half)
