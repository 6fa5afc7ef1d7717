"""Data on large pages are the same data."""

import torch

from fedtide.world.dataset import on_large_pages


def test_values_and_shape_survive() -> None:
    values = torch.arange(3 << 20, dtype=torch.float32).view(-1, 3, 4, 4).flip(0)
    moved = on_large_pages(values)
    assert moved.dtype == values.dtype
    assert torch.equal(moved, values)


def test_bytes_too() -> None:
    values = torch.randint(0, 256, (9 << 20,), dtype=torch.uint8)
    assert torch.equal(on_large_pages(values), values)


def test_a_small_table_stays_where_it_is() -> None:
    values = torch.zeros(10, 3)
    assert on_large_pages(values) is values
