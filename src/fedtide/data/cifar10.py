"""CIFAR-10, and the reader of its pickled batches."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.data._archives import read_all
from fedtide.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.sources import Resource

Constants = tuple[tuple[float, ...], tuple[float, ...]]

PLAIN_ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}
NOT_A_BATCH = (pickle.UnpicklingError, AttributeError, EOFError, ImportError, LookupError, TypeError, ValueError)


class _ArrayUnpickler(pickle.Unpickler):
    """Builds arrays, lists and dictionaries and nothing else, so a forged file cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PLAIN_ARRAYS:
            raise pickle.UnpicklingError(f"asks for {module}.{name}")
        return super().find_class(module, name)


def parse_batches(batches: Mapping[str, bytes], names: Sequence[str], label_key: bytes) -> tuple[Tensor, Tensor]:
    """Images and labels of pickled batches (format: Krizhevsky 2009, the CIFAR page).

    Args:
        batches: content of each batch by file name.
        names: the batches to read, in order.
        label_key: where a batch keeps its labels.

    Returns:
        uint8 [n, 3, 32, 32] and int64 [n].

    Raises:
        SettingsError: a batch is missing or is not one.
    """
    images, labels = [], []
    for name in names:
        if name not in batches:
            raise SettingsError(f"the archive has no {name}; delete and fetch it again")
        try:
            content = _ArrayUnpickler(io.BytesIO(batches[name]), encoding="bytes").load()
            images.append(np.asarray(content[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32))
            labels.append(np.asarray(content[label_key], dtype=np.int64))
        except NOT_A_BATCH as error:
            raise SettingsError(
                f"{name} is not a batch of images ({error}); delete and fetch the archive again"
            ) from error
    return torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels))


class Cifar10(DatasetPlugin):
    """CIFAR-10: 50,000 + 10,000 colour 32x32 photographs, 10 classes (Krizhevsky 2009).

    ``normalisation``: ``default`` is that of the dynamic-initialisation and DynamicFL papers, ``fedssg`` that of the
    FedSSG and FedWCM papers (and of the code base both build on).
    """

    class Settings(DatasetSettings):
        """Settings of CIFAR-10."""

        name: str = "cifar10"
        normalisation: Literal["default", "fedssg"] = Field("default", description="whose mean and standard deviation")

    settings: Settings

    resources = (
        Resource(
            "cifar-10-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            "md5:c58f30108f718f92721af3b95e74349a",
            alternatives=("cifar-10-batches-py.tar.xz", "cifar-10-batches-py.tar.gz"),
        ),
    )
    normalisations: ClassVar[dict[str, Constants]] = {
        "default": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        "fedssg": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    }
    train_batches: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_batches: ClassVar[tuple[str, ...]] = ("test_batch",)
    label_key: ClassVar[bytes] = b"labels"
    num_classes: ClassVar[int] = 10

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, 3, 32, 32]."""
        names = (*self.train_batches, *self.test_batches)
        files = read_all(self.resources[0].path(raw), lambda member: Path(member).name in names)
        batches = {Path(member).name: content for member, content in files.items()}
        train_images, train_labels = parse_batches(batches, self.train_batches, self.label_key)
        test_images, test_labels = parse_batches(batches, self.test_batches, self.label_key)
        mean, std = self.normalisations[self.settings.normalisation]
        return Dataset(
            name=self.settings.name,
            kind="image",
            train_inputs=train_images,
            train_labels=train_labels,
            test_inputs=test_images,
            test_labels=test_labels,
            num_classes=self.num_classes,
            digest="",
            mean=mean,
            std=std,
        )
