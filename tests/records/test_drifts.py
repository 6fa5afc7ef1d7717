"""Accuracy around drifts, from closed forms and from a run."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.core import plugins
from fedtide.records.measures import drifts
from fedtide.records.measures.drifts import Event, after_first, events, means, starts, summary
from fedtide.world.building.drifting import with_drift
from fedtide.world.drift.base import Drift
from fedtide.world.timeline import Timeline
from support import deal, federation, run_rounds, settings, steady, timeline, vectors

NAN = math.nan


def at(rounds: int, *changed: int) -> list[int]:
    """Seven clients change in each of these rounds."""
    return [7 * (t in changed) for t in range(rounds)]


def test_after_a_sudden_drift_accuracy_falls_and_recovers() -> None:
    accuracy = [0.5, *[0.9] * 5, 0.3, 0.6, 0.88, 0.891, 0.95]
    (event,) = events(accuracy, at(11, 6))
    assert event == Event(6, 11, pytest.approx(0.9), 0.3, 3)
    assert after_first(accuracy, at(11, 6)) == pytest.approx(np.mean([0.3, 0.6, 0.88, 0.891, 0.95]))


CASES = {
    "gradual": (
        [0.9] * 5 + [0.899, 0.85, 0.8, 0.7, 0.75] + [0.8] * 3 + [0.9], range(5, 11), Event(5, 14, pytest.approx(0.9), 0.7, 8),
    ),
    "without a fall": ([0.8] * 4 + [0.81, 0.795, 0.8], [4], Event(4, 7, pytest.approx(0.8), 0.795, 0)),
    "a dip after ten rounds": ([0.8] * 5 + [0.7] * 9 + [0.6, 0.1, 0.8], [5], Event(5, 17, pytest.approx(0.8), 0.6, 11)),
    "few rounds before": ([0.4, 0.6, 0.2, 0.6], [2], Event(2, 4, pytest.approx(0.5), 0.2, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("accuracy", "changed", "event"), CASES.values(), ids=CASES)
def test_one_event(accuracy: list[float], changed: list[int], event: Event) -> None:
    assert events(accuracy, at(len(accuracy), *changed)) == [event]


def test_recurrent_drifts_are_measured_up_to_the_next_one() -> None:
    """The second is not recovered by the third, and its dip is not that of the third."""
    accuracy = [0.8] * 5 + [0.4, 0.5, 0.8] + [0.6, 0.61, 0.62] + [0.2, 0.7]
    first, second, third = events(accuracy, at(13, 5, 8, 11))
    assert first == Event(5, 8, pytest.approx(0.8), 0.4, 2)
    assert second == Event(8, 11, pytest.approx((0.8 + 0.8 + 0.4 + 0.5 + 0.8) / 5), 0.6, math.inf)
    assert third == Event(11, 13, pytest.approx((0.5 + 0.8 + 0.6 + 0.61 + 0.62) / 5), 0.2, 1)
    (never,) = events([0.8] * 5 + [0.4] * 20, at(25, 5))
    assert never == Event(5, 25, pytest.approx(0.8), 0.4, math.inf)


def test_rounds_that_are_not_evaluated_do_not_count() -> None:
    accuracy = [NAN, 0.8, NAN, NAN, NAN, 0.5, NAN, NAN, 0.8]
    assert events(accuracy, at(9, 4)) == [Event(4, 9, 0.8, 0.5, 4)]
    (blind,) = events([NAN] * 4 + [0.5], at(5, 2))
    assert math.isnan(blind.before)
    assert math.isnan(blind.rounds)
    assert math.isnan(means([blind])["recovered"])


def test_runs_without_drift_have_no_events() -> None:
    for changed in ([NAN] * 4, [0] * 4, []):
        assert starts(changed) == events([0.5] * len(changed), changed) == []
    assert math.isnan(after_first([0.5] * 4, [0] * 4))


def test_means_over_events() -> None:
    found = [Event(5, 9, 0.8, 0.4, 2), Event(9, 14, 0.6, 0.5, math.inf), Event(14, 15, 0.7, 0.3, 4)]
    expected = {"before": 0.7, "dip": 0.4, "drop": 0.3, "recovered": 2 / 3, "rounds": 3}
    assert means(found) == pytest.approx(expected)


def test_the_summary_of_a_history() -> None:
    rows = [{"test_accuracy": "0.8", "concepts_changed": "0"}] * 3 + [{"test_accuracy": "0.5", "concepts_changed": "2"}]
    found = summary(rows, "test_accuracy")
    assert found["drift_rounds"] is None
    assert found == {
        "drifts": 1, "drift_before": pytest.approx(0.8), "drift_dip": 0.5, "drift_drop": pytest.approx(0.3),
        "drift_recovered": 0, "drift_rounds": None, "drift_rounds_recovered": None, "drift_after": 0.5,
    }  # fmt: skip
    assert summary([{"test_accuracy": "0.8"}], "test_accuracy") == summary([], "test_accuracy") == {}


def test_a_drift_that_is_not_recovered_from_has_no_mean_of_rounds() -> None:
    def rounds(accuracy: list[float]) -> tuple[float | None, ...]:
        rows = [
            {"test_accuracy": str(a), "concepts_changed": str(c)} for a, c in zip(accuracy, at(9, 3, 6), strict=True)
        ]
        found = summary(rows, "test_accuracy")
        return tuple(found[f"drift_{name}"] for name in ("recovered", "rounds", "rounds_recovered"))

    assert rounds([0.8] * 3 + [0.4, 0.5, 0.6] + [0.3, 0.9, 0.9]) == (0.5, None, 1)
    assert rounds([0.8] * 3 + [0.4, 0.5, 0.8] + [0.3, 0.9, 0.9]) == (1, 1.5, 1.5)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1)), min_size=2, max_size=40))
def test_events_divide_the_rounds_after_the_first(rounds: list[tuple[int, float]]) -> None:
    changed, accuracy = [0, *(c for c, _ in rounds)], [0.5, *(a for _, a in rounds)]
    found = events(accuracy, changed)
    assert [event.start for event in found] == starts(changed)
    assert [event.end for event in found] == [*starts(changed), len(accuracy)][1:]
    for event in found:
        assert event.dip == min(accuracy[event.start : min(event.end, event.start + drifts.DIP)])
        if math.isfinite(event.rounds) and event.rounds:
            assert accuracy[event.start + int(event.rounds)] >= event.before - drifts.TOLERANCE > event.dip


def drifting(world: Timeline, **drift: Any) -> Timeline:
    return with_drift(world, plugins.create(Drift, settings(drift=drift).drift), vectors(40), seed=0)


def test_the_column_of_a_run_finds_the_drifts_of_its_timeline_again() -> None:
    world = drifting(steady((12, 8, 20), 8), name="gradual", start=3, length=4)
    _, records = run_rounds(federation(settings(), world, vectors(40)))
    changed = [record.row[drifts.COLUMN] for record in records]
    assert changed == [len(world.changed_at(t)) for t in range(world.rounds)]
    assert starts(np.array(changed, dtype=float)) == [3]
    _, records = run_rounds(federation(settings(), steady((12, 8), 2), vectors(40)))
    assert drifts.COLUMN not in records[0].row


def test_a_session_that_replaces_everybody_is_no_drift() -> None:
    """Client 0 is there until client 1 is, and returns, each time under another concept."""
    who = [{0: 0}, {0: 0}, {1: 1}, {0: 0}, {0: 0, 1: 1}]
    world = timeline(deal((12, 8)), who, session_of_round=[0, 0, 1, 2, 2])
    steps = [[0, 0], [0, 0], [0, 1], [1, 0], [1, 1]]
    world = drifting(world, name="table", steps=steps)
    assert [world.changed_at(t).tolist() for t in range(5)] == [[]] * 5
    steps[4] = [0, 1]
    again = drifting(timeline(deal((12, 8)), who), name="table", steps=steps)
    assert again.changed_at(4).tolist() == [0]
