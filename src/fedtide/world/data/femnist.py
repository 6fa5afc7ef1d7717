"""FEMNIST, from the JSON files that the LEAF benchmark writes."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.randomness import generator
from fedtide.world.adapters.leaf_files import User, read_users
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset, Origins
from fedtide.world.storage.sources import Resource

TRAIN_SHARE = 0.8
SPLIT_SEED = 0

Pixels = NDArray[np.uint8]


class Femnist(DatasetPlugin):
    """FEMNIST: about 800,000 greyscale 28x28 handwritten digits and letters, 62 classes (Caldas et al. 2018, LEAF).

    Classes: digits 0..9, upper case 10..35, lower case 36..61. As in the DynamicFL paper, all samples are pooled, permuted
    with a fixed key and split 80/20. The files cannot be downloaded: run LEAF's FEMNIST preprocessing and place the
    ``all_data_*.json`` it writes, or some of them, in the raw folder.

    For every writer except the first, LEAF stores the first image twice; ``leaf_duplicates`` keeps both copies.
    """

    class Settings(DatasetSettings):
        name: str = "femnist"
        leaf_duplicates: bool = Field(False, description="keep the duplicate of each writer's first image")

    settings: Settings

    resources = (Resource("all_data_*.json"),)

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, 1, 28, 28], white background."""
        paths = self.resources[0].paths(raw)
        writers = [self._writer(name, user) for _, name, user in read_users(paths)]
        images = np.concatenate([images for _, images, _ in writers])
        labels = np.concatenate([labels for _, _, labels in writers])
        names, number = np.unique([name for name, _, _ in writers], return_inverse=True)
        client = np.repeat(number.astype(np.int64), [len(labels) for _, _, labels in writers])
        order = generator(SPLIT_SEED, "femnist.split").permutation(len(labels))
        train, test = np.split(order, [int(TRAIN_SHARE * len(labels))])
        parts = ((torch.from_numpy(images[part]), torch.from_numpy(labels[part])) for part in (train, test))
        origins = Origins(train_client=client[train], test_client=client[test], clients=tuple(names.tolist()))
        return self.dataset("image", parts, num_classes=62, mean=(0.9614,), std=(0.1634,), origins=origins)

    def _writer(self, name: str, user: User) -> tuple[str, Pixels, Ints]:
        # LEAF divides by 255, so rounding restores the gray values
        images = np.rint(255 * np.asarray(user.x, dtype=np.float64)).astype(np.uint8).reshape(-1, 1, 28, 28)
        labels = np.asarray(user.y, dtype=np.int64)
        doubled = len(labels) > 1 and labels[0] == labels[1] and np.array_equal(images[0], images[1])
        skip = int(doubled and not self.settings.leaf_duplicates)
        return name, images[skip:], labels[skip:]
