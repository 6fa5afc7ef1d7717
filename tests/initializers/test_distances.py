"""Distances of updates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedtide.methods.initializers.dynamic import DISTANCES, global_l2, inner_product, layerwise_unit, similarity_weights
from fedtide.training.engine.flat import Layout


class Named(nn.Module):
    """Parameters of given names and values."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name, value in tensors.items():
            owner: nn.Module = self
            *folders, leaf = name.split(".")
            for folder in folders:
                if not hasattr(owner, folder):
                    owner.add_module(folder, nn.Module())
                owner = getattr(owner, folder)
            owner.register_parameter(leaf, nn.Parameter(value))


def flat(tensors: dict[str, Any]) -> tuple[Tensor, Layout]:
    """Named tensors as one vector."""
    module = Named({name: torch.tensor(value, dtype=torch.float64) for name, value in tensors.items()})
    return torch.cat([value.detach().reshape(-1) for value in module.parameters()]), Layout(module)


def test_the_golden_distances_and_their_weights(golden: Any) -> None:
    case = golden["unit"]["distances"]
    updates = {session: flat(tensors) for session, tensors in case["G"].items()}
    current, layout = updates[str(case["current"])]
    for name, expected in case["expected"].items():
        found = [DISTANCES[name](current, updates[str(z)][0], layout) for z in case["stored"]]
        assert found == pytest.approx([expected[str(z)] for z in case["stored"]], abs=1e-9)
        for scale, weights in case["weights"][name].items():
            assert similarity_weights(found, float(scale)) == pytest.approx(weights, abs=1e-9)


def pair(seed: int) -> tuple[Tensor, Tensor, Layout]:
    draw = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, 4, 3, generator=draw).tolist()
    first, layout = flat({"head.weight": a[:3], "head.bias": a[3]})
    return first, flat({"head.weight": b[:3], "head.bias": b[3]})[0], layout


@given(st.integers(0, 1000), st.floats(0.01, 100))
def test_unit_distances_do_not_see_the_scale(seed: int, factor: float) -> None:
    G, H, layout = pair(seed)
    for distance in (layerwise_unit, inner_product):
        assert distance(factor * G, H, layout) == pytest.approx(distance(G, H, layout), abs=1e-12)
    assert global_l2(factor * G, factor * H, layout) == pytest.approx(factor * global_l2(G, H, layout), rel=1e-12)


@given(st.integers(0, 1000))
def test_opposite_and_equal_updates(seed: int) -> None:
    G, H, layout = pair(seed)
    assert layerwise_unit(G, -G, layout) == pytest.approx(2.0, abs=1e-12)
    assert inner_product(G, -G, layout) == pytest.approx(1.0, abs=1e-12)
    assert inner_product(G, G, layout) == pytest.approx(-1.0, abs=1e-12)
    for distance in DISTANCES.values():
        assert distance(G, H, layout) == distance(H, G, layout)
    assert layerwise_unit(G, G, layout) == global_l2(G, G, layout) == 0.0


@given(st.integers(0, 1000))
def test_with_one_tensor_both_unit_distances_agree(seed: int) -> None:
    """|a - b|^2 = 2 - 2 <a, b> for unit vectors."""
    G, H, layout = pair(seed)
    assert layerwise_unit(G, H, layout) ** 2 == pytest.approx(2 + 2 * inner_product(G, H, layout), abs=1e-12)


def test_biases_count_in_the_whole_norm_only() -> None:
    G, H, layout = pair(0)
    other = H.clone()
    other[-3:] += 1.0
    assert layerwise_unit(G, other, layout) == layerwise_unit(G, H, layout)
    assert global_l2(G, other, layout) != global_l2(G, H, layout)


def test_a_zero_tensor_is_far_from_nothing_and_orthogonal_to_all() -> None:
    G, _, layout = pair(0)
    zero = torch.zeros_like(G)
    assert layerwise_unit(zero, zero, layout) == 0.0
    assert layerwise_unit(G, zero, layout) == pytest.approx(1.0)
    assert inner_product(G, zero, layout) == 0.0
