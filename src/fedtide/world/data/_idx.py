"""IDX, the file format of the MNIST family."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.world.storage.sources import Resource

UNSIGNED_BYTES = 8  # third byte of an IDX file: the type of its items


def idx_resources(address: str, checksums: dict[str, str]) -> tuple[Resource, ...]:
    """Resources of IDX files below one address; ``checksums`` maps file name to MD5."""
    return tuple(Resource(file, (address + file,), f"md5:{md5}") for file, md5 in checksums.items())


def parse_idx(content: bytes, origin: str) -> Tensor:
    """The uint8 tensor in a gzipped IDX file (format: LeCun, Cortes and Burges, the MNIST page).

    Any other content is a SettingsError that names its ``origin``.
    """
    try:
        plain = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise SettingsError(f"{origin}: damaged or truncated ({error}); delete and fetch it again") from error
    if len(plain) < 4 or plain[:3] != bytes((0, 0, UNSIGNED_BYTES)):
        raise SettingsError(f"{origin}: not an IDX file of bytes; delete and fetch it again")
    body = 4 + 4 * plain[3]
    shape = tuple(np.frombuffer(plain[4:body], dtype=">u4").tolist())
    items = np.frombuffer(plain[body:], dtype=np.uint8)
    if len(shape) != plain[3] or items.size != np.prod(shape):
        raise SettingsError(f"{origin}: {items.size} items, its header says {shape}; delete and fetch it again")
    return torch.from_numpy(items.reshape(shape).copy())
