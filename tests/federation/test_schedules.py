"""Learning rates over rounds."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.federation.rounds.plan import learning_rate
from fedtide.settings.groups.local import LocalSettings

HORIZON = st.integers(2, 400)


@pytest.mark.parametrize(
    ("t", "rate"), [(0, 0.1), (99, 0.08202), (299, 0.05496), (599, 0.03014), (999, 0.01353), (1499, 0.00497)]
)
def test_the_exponential_schedule_has_the_printed_rates(t: int, rate: float) -> None:
    assert learning_rate(LocalSettings(schedule="exponential"), t, 1500) == pytest.approx(rate, abs=5e-6)


@given(rounds=HORIZON, min_lr_ratio=st.floats(0, 0.99))
def test_the_polynomial_schedule_falls_from_the_first_rate_and_stays_above_the_floor(
    rounds: int, min_lr_ratio: float
) -> None:
    local = LocalSettings(schedule="polynomial", lr=0.2, min_lr_ratio=min_lr_ratio)
    rates = [learning_rate(local, t, rounds) for t in range(rounds)]
    assert rates[0] == pytest.approx(0.2)
    assert all(later < earlier for earlier, later in pairwise(rates))
    assert rates[-1] > 0.2 * min_lr_ratio
    middle = (0.2 - 0.2 * min_lr_ratio) * 0.5**0.9 + 0.2 * min_lr_ratio
    assert learning_rate(local, 5, 10) == pytest.approx(middle)


@given(rounds=HORIZON, lowest=st.floats(0, 0.1))
def test_the_cosine_schedule(rounds: int, lowest: float) -> None:
    local = LocalSettings(schedule="cosine", lr=0.2, min_lr_ratio=lowest / 0.2)
    for t in range(rounds):
        wanted = lowest + (0.2 - lowest) * (1 + math.cos(math.pi * t / rounds)) / 2
        assert learning_rate(local, t, rounds) == pytest.approx(wanted)


@pytest.mark.parametrize("schedule", ["polynomial", "cosine"])
def test_a_run_cut_short_has_the_rates_of_the_whole_one(schedule: str) -> None:
    whole = LocalSettings(schedule=schedule, lr=0.2, min_lr_ratio=0.1)  # type: ignore[arg-type]
    cut = whole.model_copy(update={"schedule_rounds": 800})
    assert [learning_rate(cut, t, 50) for t in range(50)] == [learning_rate(whole, t, 800) for t in range(50)]
    assert learning_rate(cut, 900, 1000) == pytest.approx(0.02)


@pytest.mark.parametrize("schedule", ["constant", "exponential", "cosine", "polynomial"])
def test_the_schedule_begins_after_a_linear_warm_up(schedule: str) -> None:
    plain = LocalSettings(schedule=schedule, lr=0.2)  # type: ignore[arg-type]
    warmed = plain.model_copy(update={"warmup": 3})
    rates = [learning_rate(warmed, t, 10) for t in range(10)]
    assert rates[:3] == pytest.approx([0.05, 0.1, 0.15])
    assert rates[3:] == [learning_rate(plain, t, 7) for t in range(7)]
    assert [learning_rate(warmed, t, 2) for t in range(2)] == rates[:2]  # a session that ends before
