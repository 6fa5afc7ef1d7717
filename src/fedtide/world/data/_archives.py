"""Reading archives in place: members come as bytes, nothing is unpacked to disk, so no name can lead out of a folder."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from fedtide.core.errors import SettingsError

_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)


def read_all(archive: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Contents of the wanted regular files of a tar (plain, gz, bz2, xz) or zip archive, by their names.

    Raises:
        SettingsError: the archive is missing, damaged or truncated.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                return {
                    name: opened.read(name) for name in opened.namelist() if not name.endswith("/") and wanted(name)
                }
        with tarfile.open(archive) as tar:
            files = (
                (member.name, tar.extractfile(member)) for member in tar if member.isfile() and wanted(member.name)
            )
            return {name: content.read() for name, content in files if content is not None}
    except _DAMAGED as error:
        raise SettingsError(f"{archive}: missing, damaged or truncated ({error}); delete and fetch it again") from error
