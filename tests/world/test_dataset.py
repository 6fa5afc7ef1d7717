"""Samples of a dataset: who is read, who is counted; on large pages they are the same."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtide.world.dataset import Dataset, on_large_pages
from support import deal, vectors


def halves() -> Dataset:
    """Another test set than the training set."""
    train, test = vectors(12), vectors(7, seed=1)
    return replace(train, test_inputs=test.train_inputs, test_labels=test.train_labels)


@pytest.mark.parametrize("split", ["train", "test"])
def test_samples_are_those_of_the_split_at_the_positions(split: Literal["train", "test"]) -> None:
    data = halves()
    inputs, labels = {"train": (data.train_inputs, data.train_labels), "test": (data.test_inputs, data.test_labels)}[
        split
    ]
    places = [5, 0, 5, 3]
    for positions in (torch.tensor(places), slice(2, 6), slice(None)):
        found = data.read(split, positions)
        assert torch.equal(found[0], inputs[positions])
        assert torch.equal(found[1], labels[positions])
    assert data.classes(np.array(places), split).tolist() == labels[places].tolist()
    assert data.size(split) == len(labels)


def test_classes_are_counted_in_each_shard() -> None:
    data = halves()
    shards = [*deal([4, 0, 6]), np.array([3, 3], dtype=np.int64)]
    counts = data.label_counts(shards)
    assert counts.tolist() == [[int((data.train_labels[shard] == c).sum()) for c in range(3)] for shard in shards]


def test_samples_that_replace_others_are_read_and_counted() -> None:
    data = halves().with_capacity(3)
    assert data.label_counts([np.arange(12, 15)]).tolist() == [[3.0, 0.0, 0.0]]
    data.write(13, torch.full((2, 5), 7.0, dtype=torch.float64), torch.tensor([2, 1]))
    inputs, labels = data.read("train", torch.arange(12, 15))
    assert inputs.sum(1).tolist() == [0.0, 35.0, 35.0]
    assert labels.tolist() == data.classes(np.arange(12, 15)).tolist() == [0, 2, 1]
    assert data.label_counts([np.arange(12, 15)]).tolist() == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    "values",
    [torch.arange(3 << 20, dtype=torch.float32).view(-1, 3, 4, 4).flip(0), torch.randint(0, 256, (9 << 20,)).byte()],
)
def test_values_and_shape_survive_and_a_small_table_stays_where_it_is(values: Tensor) -> None:
    moved = on_large_pages(values)
    assert moved.dtype == values.dtype
    assert torch.equal(moved, values)
    small = values[:10]
    assert on_large_pages(small) is small
