"""Weights, mixtures and pilot models."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from fedtide.methods.initializers.dynamic import mix, pilot_weights, similarity_weights

DISTANCES = st.lists(st.floats(0, 2), min_size=1, max_size=7)
SCALES = st.floats(0, 100)


def test_the_golden_weights(golden: Any) -> None:
    for case in golden["unit"]["weights"]:
        assert similarity_weights(case["distances"], float(case["R"])) == pytest.approx(case["weights"], abs=1e-9)


def test_the_golden_pilots(golden: Any) -> None:
    for case in golden["unit"]["pilot"]:
        models = [(torch.tensor(model, dtype=torch.float64), torch.zeros(0)) for model in case["models"]]
        w, _ = mix(pilot_weights(len(models), case["mode"], case["beta"]), models)
        assert w.tolist() == pytest.approx(case["pilot"], abs=1e-9)


@given(DISTANCES, SCALES)
def test_weights_are_weights(distances: list[float], scale: float) -> None:
    weights = similarity_weights(distances, scale)
    assert math.fsum(weights) == pytest.approx(1.0, abs=1e-12)
    assert min(weights) >= 0


@given(DISTANCES)
def test_without_a_scale_all_weigh_the_same(distances: list[float]) -> None:
    assert similarity_weights(distances, 0.0) == [1 / len(distances)] * len(distances)


@given(st.floats(-1, 1e8), st.integers(1, 5), st.sampled_from([0.0, 1.0, math.inf]))
def test_equal_distances_weigh_the_same(distance: float, count: int, scale: float) -> None:
    assert similarity_weights([distance] * count, scale) == [1 / count] * count


@given(DISTANCES)
def test_an_infinite_scale_chooses_the_nearest(distances: list[float]) -> None:
    nearest = [d - min(distances) <= 1e-12 for d in distances]
    assert similarity_weights(distances, math.inf) == [tie / sum(nearest) for tie in nearest]


@given(st.integers(2, 8), st.floats(0, 3), SCALES)
def test_one_that_is_nearer_than_all_others(count: int, gap: float, scale: float) -> None:
    first, *_ = similarity_weights([0.0] + [gap] * (count - 1), scale)
    assert first == pytest.approx(1 / (1 + (count - 1) * math.exp(-scale * gap)), rel=1e-12)


@given(DISTANCES, SCALES, st.floats(-3, 3), st.floats(0.1, 10))
def test_only_differences_count_and_the_scale_is_their_unit(
    distances: list[float], scale: float, shift: float, factor: float
) -> None:
    weights = similarity_weights(distances, scale)
    assert similarity_weights([d + shift for d in distances], scale) == pytest.approx(weights, abs=1e-12)
    assert similarity_weights([d * factor for d in distances], scale / factor) == pytest.approx(weights, abs=1e-12)


def test_huge_distances_and_scales_stay_finite() -> None:
    assert similarity_weights([1e8, 0.0, 1e8], 1e4) == [0.0, 1.0, 0.0]
    assert similarity_weights([1e8, 1e8 + 1], 1e4) == [1.0, 0.0]


@given(st.permutations(range(4)), st.lists(st.floats(0, 2), min_size=4, max_size=4), SCALES)
def test_weights_follow_a_permutation(order: list[int], distances: list[float], scale: float) -> None:
    weights = similarity_weights(distances, scale)
    assert similarity_weights([distances[i] for i in order], scale) == [weights[i] for i in order]


@given(st.lists(st.floats(0, 1), min_size=3, max_size=5), st.floats(0.5, 10), st.floats(0.01, 0.5))
def test_moving_one_away_leaves_the_others_in_proportion(distances: list[float], scale: float, step: float) -> None:
    before = similarity_weights(distances, scale)
    after = similarity_weights([distances[0] + step, *distances[1:]], scale)
    assert after[0] < before[0]
    for a, b in zip(after[2:], before[2:], strict=True):
        assert a / after[1] == pytest.approx(b / before[1], rel=1e-9)


@given(DISTANCES, st.floats(0, 20), st.floats(0.1, 20))
def test_a_larger_scale_is_more_decided(distances: list[float], scale: float, more: float) -> None:
    few, many = similarity_weights(distances, scale), similarity_weights(distances, scale + more)
    nearest = distances.index(min(distances))
    assert many[nearest] >= few[nearest] - 1e-15

    def entropy(weights: list[float]) -> float:
        return -math.fsum(weight * math.log(weight) for weight in weights if weight > 0)

    assert entropy(many) <= entropy(few) + 1e-12


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_distance_that_is_no_number_is_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        similarity_weights([0.1, bad], 10.0)


@given(DISTANCES, SCALES, st.sampled_from([torch.float32, torch.float64]))
def test_a_mixture_lies_between_its_models(distances: list[float], scale: float, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(len(distances))
    rows = torch.randn(len(distances), 6, generator=draw, dtype=dtype)
    w, b = mix(similarity_weights(distances, scale), [(row[:4], row[4:].abs()) for row in rows])
    tolerance = 0.0 if dtype == torch.float32 else 1e-15
    assert bool((w >= rows[:, :4].amin(0) - tolerance).all())
    assert bool((w <= rows[:, :4].amax(0) + tolerance).all())
    assert bool((b >= 0).all())
    assert w.dtype == b.dtype == dtype


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


@given(st.integers(2, 6), st.floats(0.01, 0.99))
def test_the_moving_average_is_its_recursion(count: int, decay: float) -> None:
    values = [float(3**i) for i in range(count)]
    moving = values[0]
    for value in values[1:]:
        moving = decay * moving + (1 - decay) * value
    weights = pilot_weights(count, "ema", decay)
    assert math.fsum(a * b for a, b in zip(weights, values, strict=True)) == pytest.approx(moving, rel=1e-12)
    assert pilot_weights(3, "ema", 0.5) == [0.25, 0.25, 0.5]


@given(DISTANCES, SCALES)
def test_equal_models_make_an_equal_mixture(distances: list[float], scale: float) -> None:
    assume(len(distances) > 1)
    model = (torch.rand(5), torch.rand(2))
    w, _ = mix(similarity_weights(distances, scale), [model] * len(distances))
    assert float((w - model[0]).abs().max()) <= 1e-7
