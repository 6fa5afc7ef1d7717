"""What is known about samples when a world is made."""

from __future__ import annotations

from dataclasses import dataclass

from fedtide.core.array_types import Ints
from fedtide.world.dataset import Dataset


@dataclass(frozen=True)
class Samples:
    """Labels (0 where the task has none), clients and times of some samples, where these are known; int64 [n]."""

    label: Ints
    client: Ints | None = None
    time: Ints | None = None

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, positions: Ints) -> Samples:
        client = None if self.client is None else self.client[positions]
        return Samples(self.label[positions], client, None if self.time is None else self.time[positions])


def training_samples(data: Dataset) -> Samples:
    """All training samples of a dataset."""
    return Samples(data.classes(slice(None)), data.origins.train_client, data.origins.train_time)


def test_samples(data: Dataset) -> Samples:
    """All test samples of a dataset."""
    return Samples(data.classes(slice(None), "test"), data.origins.test_client, data.origins.test_time)
