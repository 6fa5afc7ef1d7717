"""Data on large pages are the same data."""

import pytest
import torch
from torch import Tensor

from fedtide.world.dataset import on_large_pages


@pytest.mark.parametrize(
    "values",
    [torch.arange(3 << 20, dtype=torch.float32).view(-1, 3, 4, 4).flip(0), torch.randint(0, 256, (9 << 20,)).byte()],
)
def test_values_and_shape_survive(values: Tensor) -> None:
    moved = on_large_pages(values)
    assert moved.dtype == values.dtype
    assert torch.equal(moved, values)


def test_a_small_table_stays_where_it_is() -> None:
    values = torch.zeros(10, 3)
    assert on_large_pages(values) is values
