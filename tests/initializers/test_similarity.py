"""From updates to a start: distances of updates, weights, mixtures, pilot models, and which sessions are kept."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedtide.methods.initializers.dynamic import (
    DISTANCES,
    global_l2,
    inner_product,
    kept,
    layerwise_unit,
    mix,
    pilot_weights,
    similarity_weights,
)
from fedtide.training.engine.flat import Layout

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sessions.json").read_text(encoding="utf-8"))["unit"]
GAPS = st.lists(st.floats(0, 2), min_size=1, max_size=7)
SCALES = st.floats(0, 100)


def test_the_golden_weights() -> None:
    for case in GOLDEN["weights"]:
        assert similarity_weights(case["distances"], float(case["R"])) == pytest.approx(case["weights"], abs=1e-9)


def test_the_golden_pilots() -> None:
    for case in GOLDEN["pilot"]:
        models = [(torch.tensor(model, dtype=torch.float64), torch.zeros(0)) for model in case["models"]]
        w, _ = mix(pilot_weights(len(models), case["mode"], case["beta"]), models)
        assert w.tolist() == pytest.approx(case["pilot"], abs=1e-9)


@given(GAPS)
def test_an_infinite_scale_chooses_the_nearest(distances: list[float]) -> None:
    nearest = [d - min(distances) <= 1e-12 for d in distances]
    assert similarity_weights(distances, math.inf) == [tie / sum(nearest) for tie in nearest]


@given(GAPS, SCALES, st.floats(-3, 3), st.floats(0.1, 10))
def test_only_differences_count_and_the_scale_is_their_unit(
    distances: list[float], scale: float, shift: float, factor: float
) -> None:
    weights = similarity_weights(distances, scale)
    assert similarity_weights([d + shift for d in distances], scale) == pytest.approx(weights, abs=1e-12)
    assert similarity_weights([d * factor for d in distances], scale / factor) == pytest.approx(weights, abs=1e-12)


def test_huge_distances_and_scales_stay_finite() -> None:
    assert similarity_weights([1e8, 0.0, 1e8], 1e4) == [0.0, 1.0, 0.0]
    assert similarity_weights([1e8, 1e8 + 1], 1e4) == [1.0, 0.0]


@given(st.integers(1, 5), st.data())
def test_all_weight_on_one_model_is_that_model_to_the_bit(count: int, data: st.DataObject) -> None:
    chosen = data.draw(st.integers(0, count - 1))
    models = [(torch.rand(3), torch.rand(2)) for _ in range(count)]
    w, b = mix([float(i == chosen) for i in range(count)], models)
    assert torch.equal(w, models[chosen][0])
    assert torch.equal(b, models[chosen][1])


@given(st.integers(1, 6), st.floats(0, 0.99))
def test_pilot_weights_sum_to_one(count: int, decay: float) -> None:
    for mode in ("average", "ema"):
        assert math.fsum(pilot_weights(count, mode, decay)) == pytest.approx(1.0, abs=1e-12)  # type: ignore[arg-type]
    assert pilot_weights(1, "ema", decay) == pilot_weights(1, "average", decay) == [1.0]
    assert pilot_weights(count, "ema", 0.0) == [0.0] * (count - 1) + [1.0]


def flat(tensors: dict[str, Any]) -> tuple[Tensor, Layout]:
    """Named tensors as one vector."""
    layers: dict[str, nn.ParameterDict] = {}
    for name, value in tensors.items():
        layer, _, part = name.rpartition(".")
        layers.setdefault(layer, nn.ParameterDict())[part] = torch.tensor(value, dtype=torch.float64)
    network = nn.ModuleDict(layers)
    return torch.cat([value.detach().flatten() for value in network.parameters()]), Layout(network)


def test_the_golden_distances_and_their_weights() -> None:
    case = GOLDEN["distances"]
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


@given(st.integers(0, 1000))
def test_opposite_and_equal_updates(seed: int) -> None:
    G, H, layout = pair(seed)
    assert layerwise_unit(G, -G, layout) == pytest.approx(2.0, abs=1e-12)
    assert inner_product(G, -G, layout) == pytest.approx(1.0, abs=1e-12)
    assert inner_product(G, G, layout) == pytest.approx(-1.0, abs=1e-12)
    for distance in DISTANCES.values():
        assert distance(G, H, layout) == distance(H, G, layout)
    other = H + torch.tensor([0.0] * 9 + [1.0] * 3)  # another bias, which counts in the whole norm only
    assert layerwise_unit(G, other, layout) == layerwise_unit(G, H, layout)
    assert global_l2(G, other, layout) != global_l2(G, H, layout)
    assert layerwise_unit(G, G, layout) == global_l2(G, G, layout) == 0.0


def test_a_zero_tensor_is_far_from_nothing_and_orthogonal_to_all() -> None:
    G, _, layout = pair(0)
    zero = torch.zeros_like(G)
    assert layerwise_unit(zero, zero, layout) == 0.0
    assert layerwise_unit(G, zero, layout) == pytest.approx(1.0)
    assert inner_product(G, zero, layout) == 0.0


def test_the_golden_cases() -> None:
    for case in GOLDEN["retention"]:
        keys = case["keys"]

        def distance(a: int, b: int, case: Any = case, keys: Any = keys) -> float:
            return float(case["distance"][keys.index(a)][keys.index(b)])

        assert kept(keys, case["history"], case["retention"] == "diverse", distance) == case["kept"]


@given(st.integers(1, 8), st.integers(0, 9), st.booleans())
def test_the_newest_stays_and_no_more_than_fit(count: int, cap: int, diverse: bool) -> None:
    found = kept(range(count), cap, diverse, lambda a, b: float((a * 7 + b * 3) % 5))
    assert len(found) == min(count, cap)
    assert found == sorted(found)
    if cap:
        assert found[-1] == count - 1
    assert kept(range(count), None, diverse) == list(range(count))
