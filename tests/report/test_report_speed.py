from __future__ import annotations

import math

import numpy as np
import pytest

from fedtide.report.tables.speed import RoundsToTarget, last_rounds, rounds_to_target

NAN = math.nan


def test_a_target_counts_rounds_from_one_and_a_miss_counts_as_the_length_of_the_run() -> None:
    accuracy = [0.1, NAN, 0.5, 0.4, 0.6]
    assert rounds_to_target(accuracy, 0.5) == RoundsToTarget(3, True)
    assert str(rounds_to_target(accuracy, 0.5)) == "3"
    assert rounds_to_target(accuracy, 0.7) == RoundsToTarget(5, False)
    assert str(rounds_to_target(accuracy, 0.7)) == ">5"


@pytest.mark.parametrize(("fedavg", "method", "speed"), [(45, 26, 1.73), (45, 28, 1.61), (76, 24, 3.17)])
def test_published_speed_ups(fedavg: int, method: int, speed: float) -> None:
    ours = RoundsToTarget(method, True)
    assert round(ours.speed_up(RoundsToTarget(fedavg, True)), 2) == speed
    assert ours.speed_up(ours) == 1


def test_the_last_rounds_have_a_population_spread() -> None:
    assert last_rounds([0.9, 0.1, NAN, 0.3], 3) == pytest.approx((0.2, 0.1))
    assert last_rounds(np.r_[np.zeros(100), np.tile([0.4, 0.6], 25)]) == pytest.approx((0.5, 0.1))
    assert all(math.isnan(value) for value in last_rounds([NAN]))
    assert last_rounds([0.7]) == (0.7, 0.0)
