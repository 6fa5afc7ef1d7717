"""Alarms against true drifts, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.records.measures.detections import HORIZON, detections, listed, summary


def at(rounds: int, *these: int) -> list[int]:
    return [int(t in these) for t in range(rounds)]


def test_alarms_are_detections_up_to_the_horizon_or_the_next_drift() -> None:
    found = detections(at(60, 2, 12, 14, 27, 45), at(60, 10, 25, 35))
    assert found.alarms == [2, 12, 14, 27, 45]
    assert found.delays[:2] == [2, 2]
    assert math.isnan(found.delays[2])  # ten rounds after it
    assert (found.detected, found.delay, found.false) == (2, 2, 2)


def test_an_alarm_in_the_round_of_a_drift_has_no_delay_and_one_before_is_false() -> None:
    assert detections(at(20, 5), at(20, 5)).delay == 0
    assert detections(at(20, 4), at(20, 5))[1:] == ([pytest.approx(math.nan, nan_ok=True)], 1)


def test_a_gradual_drift_is_one_that_can_be_detected_until_it_is_over() -> None:
    """Changes in rounds 5 to 24; the horizon counts from the last one, the delay from the first."""
    found = detections(at(40, 30), at(40, *range(5, 25)))
    assert (found.delays, found.false) == ([25], 0)
    assert detections(at(40, 34), at(40, *range(5, 25))).false == 1


def test_without_drift_every_alarm_is_false() -> None:
    assert detections(at(20, 3, 9), [0] * 20) == ([3, 9], [], 2)
    assert detections([], []) == ([], [], 0)
    assert math.isnan(detections([], []).delay)


def test_the_summary_of_a_history() -> None:
    """Where no drift was planted, alarms are counted and not judged."""
    rows = [{"alarm": str(alarm), "concepts_changed": str(c)} for alarm, c in zip(at(9, 1, 6), at(9, 4), strict=True)]
    assert summary(rows) == {"alarms": 2, "drift_detected": 1, "drift_false_alarms": 1, "drift_delay": 2}
    quiet = [{"alarm": "0", "concepts_changed": "0"}, {"alarm": "", "concepts_changed": ""}]
    assert summary(quiet) == {"alarms": 0, "drift_detected": 0, "drift_false_alarms": 0, "drift_delay": None}
    assert summary([{"concepts_changed": "1"}]) == summary([]) == {}
    assert summary([{"alarm": "1"}, {"alarm": ""}, {"alarm": "1"}]) == {"alarms": 2}


def test_alarms_in_words() -> None:
    assert listed([]) == "no alarms"
    assert listed([(62, "2025-07")]) == "1 alarm: round 62, 2025-07"
    assert listed([(n, "") for n in range(1, 8)]).endswith(
        "7 alarms: round 1; round 2; round 3; round 4; round 5; and 2 more"
    )


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_detections_are_alarms_that_are_not_false(rounds: list[tuple[bool, bool]]) -> None:
    alarm, changed = [a for a, _ in rounds], [False, *(c for _, c in rounds[1:])]
    found = detections(alarm, changed)
    recent = [any(changed[max(0, t - HORIZON + 1) : t + 1]) for t in range(len(rounds))]
    assert found.false == sum(a and not near for a, near in zip(alarm, recent, strict=True))
    assert found.detected <= len(found.alarms) - found.false
