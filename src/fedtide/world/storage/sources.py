"""Where the files of a dataset come from: the raw folder, a mirror, the network, in this order; archives are read in place."""

import gzip
import hashlib
import itertools
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

from filelock import FileLock

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import sync

MIRROR_VARIABLE = "FEDTIDE_MIRROR"

_INCOMPLETE = "incomplete"
"""Folder next to the raw one; only who holds the lock writes there."""


@dataclass(frozen=True)
class Resource:
    """One file of a dataset.

    Attributes:
        file: its name in the raw folder, or a pattern of several files (``all_data_*.json``).
        urls: addresses, tried in turn; none if the file can only be placed by hand.
        checksum: ``md5:<hex>`` or ``sha256:<hex>`` of the file; empty if unknown.
        alternatives: other names, for the same content in another format, without checksums.
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
            if self.checksum and path.name not in self.alternatives:
                algorithm, expected = self.checksum.split(":")
                content.seek(0)
                actual = hashlib.file_digest(content, algorithm).hexdigest()
                if actual != expected:
                    raise OSError(f"has {algorithm} {actual}, expected {expected}")


def fetch(name: str, resources: Sequence[Resource], root: Path, mirror: Path | None = None) -> Path:
    """Collect all files of a dataset in ``<root>/<name>/raw``, and return that folder.

    A file gets there only when it is complete and its checksum is right; a second process waits for the first. ``mirror``
    (default: the environment variable ``FEDTIDE_MIRROR``) is searched recursively before the network is tried; files there
    may be compressed (``<file>.gz``).

    Raises:
        SettingsError: a file is unavailable, or the one in the raw folder is wrong.
    """
    raw = root / name / "raw"
    if resources:
        make_folder(raw)
        with FileLock(root / name / "raw.lock"):
            shutil.rmtree(raw.with_name(_INCOMPLETE), ignore_errors=True)  # of a process that was killed
            for resource in resources:
                _obtain(name, resource, raw, mirror)
    return raw


def make_folder(folder: Path) -> None:
    """Create a folder below ``data.root``; a SettingsError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"data.root: cannot create {folder} ({error.strerror})") from error


def _obtain(name: str, resource: Resource, raw: Path, mirror: Path | None) -> None:
    if present := resource.present(raw):
        for path in present:
            try:
                resource.check(path)
            except OSError as error:
                raise SettingsError(f"data {name!r}: {path} {error}; delete it, or {resource.request(raw)}") from error
        return
    incomplete, reasons = raw.with_name(_INCOMPLETE), []
    for source in itertools.chain[list[Path] | str](_in_mirror(resource, mirror), resource.urls):
        try:
            incomplete.mkdir()
            if isinstance(source, str):
                _download(source, incomplete / resource.file)
            else:
                _copy(source, incomplete, resource)
            files = list(incomplete.iterdir())
            for path in files:
                resource.check(path)
                sync(path)
            for path in files:
                path.replace(raw / path.name)
        except (OSError, EOFError, zlib.error, HTTPException) as error:
            reasons.append(f"{source if isinstance(source, str) else source[0]} {' '.join(str(error).split())}")
        else:
            return
        finally:
            shutil.rmtree(incomplete, ignore_errors=True)
    why = "; ".join(reasons) or "it has no download address"
    raise SettingsError(f"data {name!r}: cannot get {resource.file}: {why}; {resource.request(raw)}")


def _in_mirror(resource: Resource, mirror: Path | None) -> Iterator[list[Path]]:
    """The files of this resource in each folder of the mirror that has them."""
    chosen = mirror or os.environ.get(MIRROR_VARIABLE)
    if not chosen:
        return
    folder = Path(chosen)
    if not folder.is_dir():
        raise SettingsError(f"data.mirror: {folder} is not a folder")
    for pattern in (resource.file, f"{resource.file}.gz", *resource.alternatives):
        found = sorted((path for path in folder.rglob(pattern) if path.is_file()), key=lambda path: (path.parent, path))
        for _, together in itertools.groupby(found, key=lambda path: path.parent):
            yield list(together)


def _copy(files: Sequence[Path], folder: Path, resource: Resource) -> None:
    """Copy into a folder, unpacking those that have the name of the resource and ``.gz``."""
    for path in files:
        if any(path.match(name) for name in (resource.file, *resource.alternatives)):
            shutil.copyfile(path, folder / path.name)
        else:
            with gzip.open(path) as reading, (folder / path.stem).open("wb") as writing:
                shutil.copyfileobj(reading, writing, 1 << 20)


def _download(url: str, target: Path) -> None:
    with urlopen(Request(url, headers={"User-Agent": "fedtide"}), timeout=30) as response, target.open("wb") as writing:
        if response.headers.get_content_type() == "text/html":
            raise OSError("sent a web page instead of data")
        shutil.copyfileobj(response, writing, 1 << 20)
        if response.length:
            raise OSError(f"the connection ended {response.length} bytes too early")


def read_all(archive: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Contents of the wanted regular files of a tar (plain, gz, bz2, xz) or zip archive, by their names.

    Nothing is unpacked to disk, so no name can lead out of a folder.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            return {name: opened.read(name) for name in opened.namelist() if not name.endswith("/") and wanted(name)}
    with tarfile.open(archive) as tar:
        files = ((member.name, tar.extractfile(member)) for member in tar if member.isfile() and wanted(member.name))
        return {name: content.read() for name, content in files if content is not None}
