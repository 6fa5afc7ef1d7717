"""Random vectors made by very many clients, for measuring what a large population costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pydantic import Field, PositiveInt

from fedtide.core.randomness import generator
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset, Origins


class Crowd(DatasetPlugin):
    """Normal features with random labels of 10 classes; there is nothing to learn.

    Every client has ``samples``, and the first one ``largest`` if that is more.
    """

    class Settings(DatasetSettings):
        """Settings of the crowd."""

        name: str = "crowd"
        clients: PositiveInt = Field(1000, description="clients")
        samples: PositiveInt = Field(2, description="training samples of each")
        largest: PositiveInt = Field(1, description="training samples of the first client, if more than `samples`")
        features: PositiveInt = Field(64, description="numbers of a sample")
        test: PositiveInt = Field(1000, description="test samples")

    def read(self, raw: Path) -> Dataset:
        """Vectors float32 [n, features]; nothing is read from ``raw``."""
        numbers, labels, s = generator(0, "crowd.features"), generator(0, "crowd.labels"), self.settings
        more = max(0, s.largest - s.samples)
        sizes = (s.clients * s.samples + more, s.test)
        inputs = [torch.from_numpy(numbers.standard_normal((n, s.features), dtype=np.float32)) for n in sizes]
        classes = [torch.from_numpy(labels.integers(0, 10, n)) for n in sizes]
        owners = np.append(np.tile(np.arange(s.clients, dtype=np.int64), s.samples), np.zeros(more, dtype=np.int64))
        return Dataset(
            name="crowd",
            kind="vector",
            train_inputs=inputs[0],
            train_labels=classes[0],
            test_inputs=inputs[1],
            test_labels=classes[1],
            num_classes=10,
            digest="",
            origins=Origins(train_client=owners, clients=tuple(map(str, range(s.clients)))),
        )
