"""Networks as flat vectors."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch import nn

from fedtide.training.engine.flat import (
    Layout,
    ResidentModule,
    add_weighted,
    add_weighted_updates,
    flatten,
    weighted_sum,
)
from fedtide.training.models.base import Network
from support import closest, federation, images, settings, steady

CPU = torch.device("cpu")


@pytest.fixture
def network() -> Network:
    """A network with parameters, BatchNorm statistics and dropout."""
    return federation(settings(model="cnn_svhn"), steady((3,), 1), images()).parts.task.network


def test_the_layout_is_the_order_of_named_parameters(network: Network) -> None:
    layout = Layout(network)
    w, b = flatten(network, torch.float64, CPU)
    assert layout.size == len(w) == sum(value.numel() for value in network.parameters())
    assert [slot.name for slot in layout.parameters] == [name for name, _ in network.named_parameters()]
    named = layout.named(w, b)
    for name, value in [*network.named_parameters(), *network.named_buffers()]:
        if value.is_floating_point():
            assert torch.equal(named[name], value.double())
    assert layout.buffer_size == len(b) == sum(v.numel() for v in network.buffers() if v.is_floating_point())
    assert layout.dropout_keys == ["dropout.key"]


def test_parameters_gradients_and_statistics_are_views(network: Network) -> None:
    resident = ResidentModule(network, torch.float64, CPU)
    before = [value.clone() for value in network.parameters()]
    resident.load(torch.full_like(resident.w, 0.01), torch.full_like(resident.b, 0.5))
    assert all(bool((value == 0.01).all()) for value in resident.network.parameters())
    assert all(bool((v == 0.5).all()) for v in resident.network.buffers() if v.is_floating_point())
    resident.network.train()
    resident.network(
        torch.randn(4, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ).sum().backward()
    wanted = torch.cat([value.grad.reshape(-1) for value in resident.network.parameters()])  # type: ignore[union-attr]
    assert torch.equal(resident.g, wanted)
    assert bool(wanted.any())
    assert not bool((resident.b == 0.5).all())  # training moved the statistics, in the flat vector
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


@examples(deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6))
def test_the_weighted_sum_adds_in_client_order(weights: list[float]) -> None:
    rows = torch.randn(len(weights), 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    total = torch.zeros(4, dtype=torch.float64)
    for weight, row in zip(weights, rows, strict=True):
        total = total.add(row, alpha=weight)
    assert torch.equal(weighted_sum(torch.tensor(weights, dtype=torch.float64), rows), total)
    assert closest(total, torch.tensor(weights, dtype=torch.float64) @ rows) < 1e-12


@pytest.mark.parametrize("values", [1, 2, 5])
@pytest.mark.parametrize("pixels", [(), (1, 1), (2, 1)])
def test_a_single_value_per_channel_is_normalized_by_the_running_statistics(values: int, pixels: tuple[int]) -> None:
    layer: nn.Module = nn.BatchNorm2d(3) if pixels else nn.BatchNorm1d(3)
    plain = nn.Sequential(nn.Flatten(0, -2) if not pixels else nn.Identity(), layer)
    inputs = torch.randn(values, 3, *pixels, dtype=torch.float64, generator=torch.Generator().manual_seed(values))
    resident = ResidentModule(plain, torch.float64, CPU)  # type: ignore[arg-type]
    plain = plain.double()
    start = torch.tensor([0.1, 0.2, 0.3, 2.0, 3.0, 4.0], dtype=torch.float64)
    resident.load(resident.w, start)
    layer.running_mean, layer.running_var = start[:3].clone(), start[3:].clone()  # type: ignore[assignment]
    alone = values == 1 and pixels != (2, 1)
    plain.train(not alone)
    resident.network.train()
    found = resident.network(inputs)
    found.square().sum().backward()
    wanted = plain(inputs)
    wanted.square().sum().backward()
    assert torch.equal(found, wanted)
    assert torch.equal(resident.g, torch.cat([value.grad.reshape(-1) for value in plain.parameters()]))  # type: ignore[union-attr]
    assert torch.equal(resident.b, torch.cat([layer.running_mean, layer.running_var]))  # type: ignore[list-item]
    assert torch.equal(resident.b, start) == alone


def test_weighted_updates_are_the_weighted_sum_of_differences() -> None:
    draw = torch.Generator().manual_seed(0)
    rows, start = (torch.randn(5, 9, generator=draw) for _ in range(2))
    weights, scale = torch.rand(5, generator=draw), torch.rand(5, 1, generator=draw)
    total = torch.zeros(9)
    add_weighted_updates(total, weights, scale, rows, start)
    assert torch.equal(total, weighted_sum(weights, (rows - start) * scale))


@pytest.mark.parametrize("pieces", [[5], [2, 3], [0, 1, 4, 0]])
def test_a_sum_in_pieces_is_the_sum_to_the_bit(pieces: list[int]) -> None:
    draw = torch.Generator().manual_seed(0)
    rows, weights = torch.randn(5, 9, generator=draw), torch.rand(5, generator=draw)
    total = torch.zeros(9)
    for some, part in zip(torch.split(weights, pieces), torch.split(rows, pieces), strict=True):
        add_weighted(total, some, part)
    assert torch.equal(total, weighted_sum(weights, rows))
