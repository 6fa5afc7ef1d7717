"""Compression: errors, bits, and what error feedback keeps."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.algorithms.base import Vectors
from fedtide.training.engine.flat import Layout
from support import closest, preview
from uplink.passing import Passing, length, normal

D = 12
PLAIN: list[dict[str, Any]] = [
    {"name": "qsgd", "levels": 1},
    {"name": "qsgd", "levels": 7, "scope": "tensor"},
    {"name": "top_k", "fraction": 0.25, "error_feedback": False},
    {"name": "random_k", "fraction": 0.25},
    {"name": "sign", "error_feedback": False},
    {"name": "sign", "error_feedback": False, "scope": "tensor"},
]
REMEMBERING: list[dict[str, Any]] = [
    {"name": "qsgd", "levels": 4, "error_feedback": True},
    {"name": "top_k", "fraction": 0.25},
    {"name": "random_k", "fraction": 0.25, "error_feedback": True},
    {"name": "sign"},
]


def draws(rows: int = 4) -> Any:
    """Updates with zeros, of very different sizes."""
    numbers = st.sampled_from([0.0, 0.0, 1.0, -1.0]) | st.floats(-1e3, 1e3).map(lambda x: round(x, 6))
    return st.lists(numbers, min_size=rows * D, max_size=rows * D).map(
        lambda values: torch.tensor(values, dtype=torch.float64).view(rows, D)
    )


def squared(rows: Tensor) -> Tensor:
    return length(rows) ** 2


@given(draws(), st.sampled_from([1, 2, 15, 10**6]))
def test_qsgd_sends_a_neighboring_level(v: Tensor, levels: int) -> None:
    sent, _ = Passing("qsgd", 4, D, levels=levels)(v)
    step = length(v).unsqueeze(1) / levels
    assert bool(((sent - v).abs() <= step * (1 + 1e-9) + 1e-12).all())
    assert bool((sent * v >= 0).all())
    places = sent / step.clamp(min=1e-300)
    assert closest(places, places.round()) < 1e-9 * levels
    assert torch.equal(sent[length(v) == 0], v[length(v) == 0])


@given(draws(), st.integers(1, D))
def test_top_k_keeps_the_largest_numbers_as_they_are(v: Tensor, k: int) -> None:
    sent, found = Passing("top_k", 4, D, fraction=k / D, error_feedback=False)(v)
    for row, kept in zip(v, sent, strict=True):
        order = sorted(range(D), key=lambda j: (-abs(float(row[j])), j))
        expected = torch.zeros(D, dtype=torch.float64)
        expected[order[:k]] = row[order[:k]]
        assert torch.equal(kept, expected)
    assert bool((squared(sent - v) <= (1 - k / D) * squared(v) * (1 + 1e-12)).all())
    assert found["compression_error"] == pytest.approx(float(length(sent - v).mean()))


@given(draws(), st.integers(1, D))
def test_random_k_sends_k_numbers_and_scaled_ones_d_over_k_times(v: Tensor, k: int) -> None:
    plain, _ = Passing("random_k", 4, D, fraction=k / D, scaled=False, error_feedback=False)(v)
    scaled, _ = Passing("random_k", 4, D, fraction=k / D)(v)
    assert bool(((plain == v) | (plain == 0)).all())
    assert closest(scaled, plain * (D / k)) < 1e-9
    places = [int((row != 0).sum()) for row in Passing("random_k", 4, D, fraction=k / D)(torch.ones_like(v))[0]]
    assert places == [k] * 4


@given(draws())
def test_the_error_of_signs_is_known(v: Tensor) -> None:
    sent, _ = Passing("sign", 4, D, error_feedback=False)(v)
    first = v.abs().sum(1)
    assert closest(squared(sent - v), squared(v) - first**2 / D) < 1e-9 * float(squared(v).max() + 1)
    assert closest(sent.abs(), (first / D).unsqueeze(1).expand_as(sent)) < 1e-12 * float(first.max() + 1)
    fixed, _ = Passing("sign", 4, D, magnitude=0.5)(v)
    assert torch.equal(fixed, torch.where(v < 0, -0.5, 0.5).to(v))


@pytest.mark.parametrize("values", [{"name": "qsgd", "levels": 7}, {"name": "sign", "error_feedback": False}])
def test_a_scope_of_tensors_compresses_each_by_itself(values: dict[str, Any]) -> None:
    """A Linear(11, 1) has tensors of 11 numbers and of one, which is its own norm."""
    v = normal(4, D)
    sent, _ = Passing(clients=4, size=D, scope="tensor", **values)(v)
    assert torch.equal(sent[:, 11:], v[:, 11:])
    assert torch.equal(sent[:, :11], Passing(clients=4, size=11, **values)(v[:, :11])[0])


def test_tensors_have_draws_of_their_own() -> None:
    passing, half = Passing("qsgd", 20, D, levels=1, scope="tensor"), normal(20, D // 2)
    passing.link.bind([passing.link], Layout(torch.nn.LayerNorm(D // 2)))
    sent, _ = passing(torch.cat([half, half], 1))
    assert closest(sent[:, : D // 2], sent[:, D // 2 :]) > 1.0


COUNT = 4000


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 3])
def test_qsgd_is_right_on_average(levels: int) -> None:
    v = normal(1, D, seed=3)
    sent, _ = Passing("qsgd", COUNT, D, levels=levels)(v.expand(COUNT, D))
    norm = float(length(v))
    part = (levels * v[0].abs() / norm) % 1
    variance = (norm / levels) ** 2 * part * (1 - part)
    assert bool(((sent.mean(0) - v[0]).abs() <= 5 * (variance / COUNT).sqrt() + 1e-12).all())
    errors = squared(sent - v)
    assert float(variance.sum()) <= min(D / levels**2, math.sqrt(D) / levels) * norm**2
    assert float(errors.mean()) == pytest.approx(float(variance.sum()), abs=5 * float(errors.std()) / math.sqrt(COUNT))


@pytest.mark.slow
def test_random_k_is_right_on_average_and_has_the_error_of_its_formula() -> None:
    v, k = normal(1, D, seed=4), 3
    sent, _ = Passing("random_k", COUNT, D, fraction=k / D)(v.expand(COUNT, D))
    variance = v[0] ** 2 * (D / k - 1)
    assert bool(((sent.mean(0) - v[0]).abs() <= 5 * (variance / COUNT).sqrt()).all())
    errors = squared(sent - v)
    expected = (D / k - 1) * float(squared(v))
    assert float(errors.mean()) == pytest.approx(expected, abs=5 * float(errors.std()) / math.sqrt(COUNT))


BITS: list[tuple[dict[str, Any], int, int | None]] = [
    ({"name": "qsgd", "levels": 1}, 15, 32 + 15 * 2),
    ({"name": "qsgd"}, 15, 32 + 15 * 5),
    ({"name": "qsgd", "scope": "tensor"}, 15, 64 + 15 * 5),
    ({"name": "qsgd", "levels": None}, 15, None),
    ({"name": "top_k", "fraction": 2 / 15}, 15, 2 * (32 + 4)),
    ({"name": "top_k", "fraction": 4 / 15}, 15, 15 + 4 * 32),
    ({"name": "top_k", "fraction": 1.0}, 15, 15 * 32),
    ({"name": "top_k", "fraction": 0.001}, 15, 36),
    ({"name": "top_k", "fraction": 0.1}, 16, 2 * (32 + 4)),
    ({"name": "random_k", "fraction": 0.3}, 15, 5 * 32),
    ({"name": "sign"}, 15, 15 + 32),
    ({"name": "sign", "scope": "tensor"}, 15, 15 + 64),
    ({"name": "sign", "magnitude": 0.1}, 15, 15),
]


@pytest.mark.parametrize(("values", "size", "bits"), BITS)
def test_bits(values: dict[str, Any], size: int, bits: int | None) -> None:
    assert Passing(clients=1, size=size, **values).link.bits(size) == bits


@pytest.mark.parametrize("values", REMEMBERING, ids=lambda values: values["name"])
def test_what_is_sent_and_kept_is_what_was_to_be_sent(values: dict[str, Any]) -> None:
    passing, total, arrived = Passing(clients=3, size=D, **values), torch.zeros(3, D), torch.zeros(3, D)
    for t in range(20):
        D_t = normal(3, D, seed=t)
        sent, _ = passing(D_t)
        total, arrived = total + D_t, arrived + sent
    assert closest(arrived + passing.memory["error"], total) < 1e-12
    assert float(length(passing.memory["error"]).min()) > 0.1


def test_a_decay_of_zero_is_no_feedback() -> None:
    kept, none = Passing("sign", 3, D, memory_decay=0.0), Passing("sign", 3, D, error_feedback=False)
    for t in range(3):
        assert torch.equal(kept(normal(3, D, seed=t))[0], none(normal(3, D, seed=t))[0])
    halved = Passing("sign", 3, D, memory_decay=0.5)
    halved(normal(3, D))
    error = halved.memory["error"].clone()
    sent, _ = halved(normal(3, D, seed=1))
    assert torch.equal(sent, none(normal(3, D, seed=1) + 0.5 * error)[0])


def test_what_is_recorded_of_memories() -> None:
    passing = Passing("top_k", 3, D, fraction=0.25)
    _, first = passing(normal(3, D))
    assert isinstance(first["error_age"], Tensor)
    assert first["error_age"].flatten().tolist() == [0.0, 0.0, 0.0]
    assert (first["error_norm"], first["error_lost"]) == (0.0, 0.0)
    kept = length(passing.memory["error"])
    assert first["compression_error"] == pytest.approx(float(kept.mean()))
    passing.t = 5
    passing.memory["last"][1] = 0  # a client that has come back as a new one
    passing.link.forget(Vectors({name: rows[1:2] for name, rows in passing.memory.items()}))
    _, later = passing(normal(3, D, seed=1))
    assert isinstance(later["error_age"], Tensor)
    assert later["error_age"].flatten().tolist() == [5.0, 0.0, 5.0]
    assert later["error_norm"] == pytest.approx(float(kept.mean()))
    assert later["error_lost"] == pytest.approx(float(kept[1]))
    assert passing(normal(3, D))[1]["error_lost"] == 0.0


@pytest.mark.parametrize("values", PLAIN + REMEMBERING, ids=lambda values: values["name"])
def test_what_has_diverged_is_neither_hidden_nor_kept(values: dict[str, Any]) -> None:
    v, passing = normal(3, D), Passing(clients=3, size=D, **values)
    v[1, 4] = math.nan
    sent, _ = passing(v)
    assert torch.equal(sent[1].isnan(), v[1].isnan())
    assert bool(sent[::2].isfinite().all())
    assert all(bool(rows.isfinite().all()) for rows in passing.memory.values())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"name": "qsgd", "levels": 3, "error_feedback": True},
            "set levels >= 4 for 12 coordinates per norm, or set error_feedback = false",
        ),
        ({"name": "random_k", "scaled": True, "error_feedback": True}, "set scaled to false"),
        ({"name": "clip", "bound": None, "quantile": 0.5}, "bound = null: quantile requires an initial bound"),
    ],
)
def test_settings_that_do_not_work_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises((SettingsError, ValueError), match=message):
        Passing(clients=1, size=D, **values)


def test_feedback_and_scaling_of_random_places_exclude_each_other() -> None:
    def both(**values: Any) -> tuple[bool, bool]:
        chosen = Passing("random_k", 1, D, **values).link.settings
        return chosen.scaled, chosen.error_feedback

    assert both() == both(scaled=True) == both(error_feedback=False) == (True, False)
    assert both(scaled=False) == both(error_feedback=True) == (False, True)
    assert both(scaled=False, error_feedback=False) == (False, False)


@pytest.mark.parametrize(
    ("values", "of_run", "lines"),
    [
        ({"name": "qsgd", "levels": 3}, {"size": 10_000}, 1),
        ({"name": "qsgd", "levels": 10}, {"size": 10_000}, 0),
        ({"name": "qsgd", "levels": None}, {"size": 10_000}, 0),
    ],
)
def test_advice(values: dict[str, Any], of_run: dict[str, Any], lines: int) -> None:
    advice = Passing(clients=1, size=D, **values).link.advice(preview(**of_run))
    assert len(advice) == lines
    assert all(values["name"] in line for line in advice)
