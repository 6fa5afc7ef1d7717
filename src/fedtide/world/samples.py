"""What is known about samples when a world is made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtide.world.dataset import Dataset

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Labels of some samples, and who made them when, where that is known.

    Attributes:
        label: int64 [n], the class, 0 where the task has none. client: int64 [n], numbers of clients. time: int64 [n].
    """

    label: Ints
    client: Ints | None = None
    time: Ints | None = None

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, positions: Ints) -> Samples:
        """The samples at some positions."""
        client = None if self.client is None else self.client[positions]
        return Samples(self.label[positions], client, None if self.time is None else self.time[positions])


def training_samples(data: Dataset) -> Samples:
    """All training samples of a dataset."""
    return Samples(data.classes(slice(None)), data.origins.train_client, data.origins.train_time)


def test_samples(data: Dataset) -> Samples:
    """All test samples of a dataset."""
    return Samples(data.classes(slice(None), "test"), data.origins.test_client, data.origins.test_time)
