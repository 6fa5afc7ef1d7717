"""MNIST."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from fedtide.world.data._idx import idx_resources, parse_idx
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset


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
        files = [resource.path(raw) for resource in self.resources]
        found = [parse_idx(file.read_bytes(), str(file)) for file in files]
        train, test = ((found[place].unsqueeze(1), found[place + 1].long()) for place in (0, 2))
        return self.dataset("image", (train, test), num_classes=10, mean=(self.mean,), std=(self.std,))
