"""Handwritten digits of scikit-learn."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.splits.holdout import stratified_split

TEST_FRACTION = 0.2
SPLIT_SEED = 0


class Digits(DatasetPlugin):
    """8x8 greyscale handwritten digits that ship with scikit-learn: 1,438 + 359 images, 10 classes, no download.

    Source: Alpaydin and Kaynak 1998, test part of the UCI optical digits; values 0..16. The set has no published split:
    a fifth of every class, drawn once with a fixed key, is the test set.
    """

    class Settings(DatasetSettings):
        name: str = "digits"

    settings: Settings

    def files(self) -> tuple[Path, ...]:
        """The library's file; the library itself is not imported for it."""
        library = find_spec("sklearn")
        return (Path(library.origin).parent / "datasets/data/digits.csv.gz",) if library and library.origin else ()

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, 1, 8, 8]; nothing is read from ``raw``."""
        from sklearn.datasets import load_digits

        bundled = load_digits()
        images = torch.from_numpy(bundled.images.astype(np.uint8)).unsqueeze(1)
        labels = bundled.target.astype(np.int64)
        train, test = stratified_split(labels, np.arange(len(labels)), TEST_FRACTION, SPLIT_SEED)
        parts = ((images[part], torch.from_numpy(labels[part])) for part in (train, test))
        return self.dataset("image", parts, num_classes=10, scale=16.0)
