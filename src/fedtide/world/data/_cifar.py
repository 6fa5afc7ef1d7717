"""What CIFAR-10 and CIFAR-100 share: pickled batches of 32x32 images, and their reader."""

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.storage.sources import read_all

Constants = tuple[tuple[float, ...], tuple[float, ...]]

_PLAIN_ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


class _ArrayUnpickler(pickle.Unpickler):
    """Builds arrays, lists and dictionaries only, so that a forged file cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PLAIN_ARRAYS:
            raise pickle.UnpicklingError(f"asks for {module}.{name}")
        return super().find_class(module, name)


def _parse_batches(batches: Mapping[str, bytes], names: Sequence[str], label_key: bytes) -> tuple[Tensor, Tensor]:
    """Images uint8 [n, 3, 32, 32] and labels int64 [n] of pickled batches (format: Krizhevsky 2009, the CIFAR page).

    ``batches`` has their content by file name, ``names`` those to read.
    """
    images, labels = [], []
    for name in names:
        content = _ArrayUnpickler(io.BytesIO(batches[name]), encoding="bytes").load()
        images.append(np.asarray(content[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32))
        labels.append(np.asarray(content[label_key], dtype=np.int64))
    return torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels))


class CifarSettings(DatasetSettings):
    normalization: str


class Cifar(DatasetPlugin):
    """One archive of pickled batches.

    Attributes:
        normalizations: mean and standard deviation per channel, by name.
        train_batches, test_batches: file names of the batches. label_key: key of their labels.
    """

    settings: CifarSettings
    normalizations: ClassVar[dict[str, Constants]]
    train_batches: ClassVar[tuple[str, ...]]
    test_batches: ClassVar[tuple[str, ...]]
    label_key: ClassVar[bytes]
    num_classes: ClassVar[int]

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, 3, 32, 32]."""
        names = (*self.train_batches, *self.test_batches)
        files = read_all(self.resources[0].path(raw), lambda member: Path(member).name in names)
        batches = {Path(member).name: content for member, content in files.items()}
        train = _parse_batches(batches, self.train_batches, self.label_key)
        test = _parse_batches(batches, self.test_batches, self.label_key)
        mean, std = self.normalizations[self.settings.normalization]
        return self.dataset("image", (train, test), self.num_classes, mean=mean, std=std)
