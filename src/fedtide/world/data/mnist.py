"""MNIST, and IDX, the file format of its family."""

import gzip
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.storage.sources import Resource

UNSIGNED_BYTES = 8  # third byte of an IDX file: the type of its items


def idx_resources(address: str, checksums: dict[str, str]) -> tuple[Resource, ...]:
    """Resources of IDX files below one address; ``checksums`` maps file name to MD5."""
    return tuple(Resource(file, (address + file,), f"md5:{md5}") for file, md5 in checksums.items())


def parse_idx(content: bytes) -> Tensor:
    """The uint8 tensor in a gzipped IDX file (format: the MNIST page); other content is a ValueError."""
    plain = gzip.decompress(content)
    if plain[:3] != bytes((0, 0, UNSIGNED_BYTES)):
        raise ValueError("not an IDX file of bytes")
    body = 4 + 4 * plain[3]
    shape = tuple(np.frombuffer(plain[4:body], dtype=">u4").tolist())
    return torch.from_numpy(np.frombuffer(plain[body:], dtype=np.uint8).reshape(shape).copy())


class Mnist(DatasetPlugin):
    """MNIST: 60,000 + 10,000 greyscale 28x28 handwritten digits, 10 classes (LeCun et al. 1998)."""

    class Settings(DatasetSettings):
        name: str = "mnist"

    settings: Settings

    resources = idx_resources(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    )
    mean: ClassVar[float] = 0.1307
    std: ClassVar[float] = 0.3081

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, 1, 28, 28]."""
        found = [parse_idx(resource.path(raw).read_bytes()) for resource in self.resources]
        train, test = ((found[place].unsqueeze(1), found[place + 1].long()) for place in (0, 2))
        return self.dataset("image", (train, test), num_classes=10, mean=(self.mean,), std=(self.std,))
