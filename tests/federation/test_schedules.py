"""Learning rates over rounds: runs cut short and warm-ups; the golden runs have the rates of every schedule."""

import pytest

from fedtide.federation.rounds.plan import learning_rate
from fedtide.settings.groups.local import LocalSettings


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
