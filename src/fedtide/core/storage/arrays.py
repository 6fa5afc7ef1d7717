"""Arrays in one file: an ``.npz`` that ends with a hash of itself, so that damage is noticed before anything is read."""

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import replacing

_DIGITS = 64  # of SHA-256; they are the archive's comment, which is the end of the file
_HEADER = 1024  # more than the header of an array
_PIECE = 1 << 20


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name. Equal arrays make equal files under every version of Python."""
    with replacing(path) as part:
        with zipfile.ZipFile(part, "w") as archive:
            archive.comment = bytes(_DIGITS)
            for name, values in arrays.items():  # np.savez stamps the time and forces the format of large archives
                member = zipfile.ZipInfo(f"{name}.npy")
                member.file_size = values.nbytes + _HEADER  # a bound, which decides that format
                with archive.open(member, "w") as stream:
                    np.lib.format.write_array(stream, values, allow_pickle=False)
        with part.open("r+b") as file:
            digits = _digits(file)
            file.seek(-_DIGITS, os.SEEK_END)
            file.write(digits)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read what :func:`write_arrays` wrote; a SettingsError if the file has other content."""
    with path.open("rb") as file:
        if _digits(file) != file.read():
            raise SettingsError(f"{path} is damaged, or an earlier version wrote it")
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            return dict(stored)


def flattened(name: str, rows: list[Ints]) -> dict[str, Ints]:
    """Rows of different lengths as two arrays, ``<name>_values`` and ``<name>_lengths``."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return {f"{name}_values": np.concatenate([*rows, np.zeros(0, dtype=np.int64)]), f"{name}_lengths": lengths}


def ragged(arrays: Mapping[str, NDArray[Any]], name: str) -> list[NDArray[Any]]:
    """The rows that :func:`flattened` made arrays of."""
    lengths = arrays[f"{name}_lengths"]
    return np.split(arrays[f"{name}_values"], np.cumsum(lengths)[:-1]) if len(lengths) else []


def _digits(file: BinaryIO) -> bytes:
    """Hash of all but the last bytes of a file, which is left where these begin."""
    digest, left = hashlib.sha256(), file.seek(0, os.SEEK_END) - _DIGITS
    file.seek(0)
    while left > 0 and (piece := file.read(min(left, _PIECE))):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest().encode()
