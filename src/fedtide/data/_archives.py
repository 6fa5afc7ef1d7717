"""Reading archives in place: members come as bytes, nothing is unpacked to disk."""

from __future__ import annotations

import lzma
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fedtide.core.errors import SettingsError

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)


def members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and content of the regular files of a tar (plain, gz, bz2, xz) or zip archive.

    Args:
        archive: its format is found from its content. wanted: whether to read the member of that name.

    Raises:
        SettingsError: the archive is missing, damaged or truncated, or one of its members, wanted or not, points
            outside the archive (``..``, an absolute name, a link that leads out); nothing of such an archive is used.
    """
    try:
        read = _zip_members if zipfile.is_zipfile(archive) else _tar_members
        yield from read(archive, wanted)
    except DAMAGED as error:
        raise SettingsError(f"{archive}: missing, damaged or truncated ({error}); delete and fetch it again") from error


def read_all(archive: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """:func:`members` as a dictionary: all of them, or none if one is refused."""
    return dict(members(archive, wanted))


def _zip_members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            _refuse_outside(archive, member.filename, member.filename)
        for member in opened.infolist():
            if not member.is_dir() and wanted(member.filename):
                yield member.filename, opened.read(member)


def _tar_members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as opened:
        for member in opened:
            _refuse_outside(archive, member.name, member.name)
            if member.issym():
                _refuse_outside(archive, member.name, posixpath.join(posixpath.dirname(member.name), member.linkname))
            if member.islnk():
                _refuse_outside(archive, member.name, member.linkname)
            if member.isfile() and wanted(member.name):
                content = opened.extractfile(member)
                assert content is not None  # a regular file always has content
                yield member.name, content.read()


def _refuse_outside(archive: Path, name: str, target: str) -> None:
    place = posixpath.normpath(target.replace("\\", "/"))
    if place == ".." or place.startswith(("/", "../")):
        raise SettingsError(f"{archive}: refused, its member {name!r} points outside the archive")
