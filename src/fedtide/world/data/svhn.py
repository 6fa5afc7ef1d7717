"""Street View House Numbers, cropped digits."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.storage.sources import Resource

ADDRESS = "http://ufldl.stanford.edu/housenumbers/"


class Svhn(DatasetPlugin):
    """SVHN: 73,257 + 26,032 color 32x32 digits from house numbers, 10 unbalanced classes (Netzer et al. 2011).

    The ``train`` and ``test`` files only; the easy ``extra`` images are not used.
    """

    class Settings(DatasetSettings):
        name: str = "svhn"

    settings: Settings

    resources = (
        Resource("train_32x32.mat", (f"{ADDRESS}train_32x32.mat",), "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
        Resource("test_32x32.mat", (f"{ADDRESS}test_32x32.mat",), "md5:eb5a983be6a315427106f1b164d9cef3"),
    )

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, 3, 32, 32]."""
        paths = (resource.path(raw) for resource in self.resources)
        mean, std = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)
        return self.dataset("image", map(_read_mat, paths), num_classes=10, mean=mean, std=std)


def _read_mat(path: Path) -> tuple[Tensor, Tensor]:
    from scipy.io import loadmat

    content = loadmat(path)
    images = np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1), dtype=np.uint8)
    labels = content["y"].astype(np.int64).reshape(-1)
    labels[labels == 10] = 0  # the files label the digit 0 as 10
    return torch.from_numpy(images), torch.from_numpy(labels)
