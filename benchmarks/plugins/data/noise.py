"""Random images of any shape, for measuring speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pydantic import Field, PositiveInt

from fedtide.core.randomness import generator
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset


class Noise(DatasetPlugin):
    """Independent random pixels with random labels of 10 classes; there is nothing to learn."""

    class Settings(DatasetSettings):
        """Settings of the noise."""

        name: str = "noise"
        shape: tuple[PositiveInt, PositiveInt, PositiveInt] = Field((1, 28, 28), description="channels, height, width")
        train: PositiveInt = Field(60_000, description="training samples")
        test: PositiveInt = Field(10_000, description="test samples")

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, *shape]; nothing is read from ``raw``."""
        pixels, labels = generator(0, "noise.pixels"), generator(0, "noise.labels")
        sizes = (self.settings.train, self.settings.test)
        images = [torch.from_numpy(pixels.integers(0, 256, (n, *self.settings.shape), dtype=np.uint8)) for n in sizes]
        classes = [torch.from_numpy(labels.integers(0, 10, n)) for n in sizes]
        channels = self.settings.shape[0]
        return Dataset(
            name="noise",
            kind="image",
            train_inputs=images[0],
            train_labels=classes[0],
            test_inputs=images[1],
            test_labels=classes[1],
            num_classes=10,
            digest="",
            mean=(0.5,) * channels,
            std=(0.29,) * channels,
        )
