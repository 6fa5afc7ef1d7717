import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.records.measures import metrics

NAN = math.nan
shares = st.floats(0, 1, allow_nan=False)


def test_a_median_takes_runs_that_do_not_reach_the_target_as_the_last():
    assert metrics.median_spent([5.0, 2.0, 9.0], [True, True, True]) == (5.0, True)
    assert metrics.median_spent([5.0, 2.0, 3.0], [True, True, False]) == (5.0, True)
    assert metrics.median_spent([5.0, 2.0, 9.0, 3.0], [True, True, True, False]) == (7.0, True)
    assert metrics.median_spent([5.0, 3.0], [True, False]) == (4.0, False)


def test_final_and_best_skip_rounds_without_evaluation():
    assert metrics.final([0.2, 0.9, 0.6, NAN]) == 0.6
    assert metrics.best([0.2, 0.9, NAN, 0.6]) == 0.9


def test_nothing_evaluated_has_no_value():
    for metric in (metrics.final, metrics.best, lambda a: metrics.mean_of_last(a, 3)):
        assert math.isnan(metric([]))
        assert math.isnan(metric([NAN, NAN]))


def test_mean_of_last_counts_rounds_not_evaluations():
    accuracy = [0.1, 0.2, NAN, 0.4, NAN, 0.8]
    assert metrics.mean_of_last(accuracy, 3) == pytest.approx(0.6)
    assert metrics.mean_of_last(accuracy, 100) == pytest.approx(0.375)


def test_drops_at_session_changes_span_rounds_that_were_not_evaluated():
    accuracy, session = [0.3, 0.8, 0.1, 0.7, 0.5, 0.9], [1, 1, 2, 2, 3, 3]
    np.testing.assert_allclose(metrics.drops(accuracy, session), [0.7, 0.2])
    assert metrics.mean(metrics.drops(accuracy, session)) == pytest.approx(0.45)
    np.testing.assert_allclose(metrics.drops([0.8, NAN, NAN, 0.2], [1, 1, 2, 2]), [0.6])
    assert np.isnan(metrics.drops([0.8, NAN, NAN, NAN], [1, 1, 2, 2])).all()


def test_transition_accuracy_counts_every_change_the_same_and_one_session_has_none():
    accuracy, session = [1.0, 0.2, 0.4, 0.9, 0.6], [1, 2, 2, 2, 3]
    assert metrics.transition_accuracy(accuracy, session, [2, 3], 2) == pytest.approx((0.3 + 0.6) / 2)
    assert metrics.transition_accuracy(accuracy, session, [1, 3], 2) == pytest.approx((1.0 + 0.6) / 2)
    assert math.isnan(metrics.transition_accuracy([0.1, 0.2], [1, 1], []))
    assert math.isnan(metrics.mean(metrics.drops([0.1, 0.2], [1, 1])))
    assert len(metrics.drops([], [])) == 0


@given(st.lists(shares, min_size=1, max_size=8), st.integers(1, 5), st.integers(2, 6))
def test_equal_sessions_have_the_transition_of_one(session_accuracy, first, sessions):
    accuracy = session_accuracy * sessions
    number = np.repeat(np.arange(sessions), len(session_accuracy))
    expected = np.mean(session_accuracy[:first])
    later = range(2, sessions + 1)
    assert metrics.transition_accuracy(accuracy, number, later, first) == pytest.approx(expected)
    assert metrics.mean(metrics.drops(accuracy, number)) == pytest.approx(session_accuracy[-1] - session_accuracy[0])


def test_rounds_and_bytes_to_target():
    accuracy, traffic = [0.1, NAN, 0.5, 0.4, 0.9], [10, 20, 30, 40, 50]
    assert metrics.rounds_to_target(accuracy, 0.5) == 3
    assert metrics.bytes_to_target(accuracy, traffic, 0.5) == 30
    assert metrics.rounds_to_target(accuracy, 0.91) == math.inf
    assert metrics.bytes_to_target(accuracy, traffic, 0.91) == math.inf


@given(st.lists(shares, min_size=1, max_size=20), shares)
def test_the_target_is_first_reached_there(accuracy, target):
    at = metrics.rounds_to_target(accuracy, target)
    before = accuracy if math.isinf(at) else accuracy[: int(at) - 1]
    assert all(value < target for value in before)
    assert math.isinf(at) or accuracy[int(at) - 1] >= target


def test_mean_and_sample_deviation():
    assert metrics.mean_std([1.0, 2.0, 3.0, 4.0]) == pytest.approx((2.5, math.sqrt(5 / 3)))
    assert metrics.mean_std([0.4, NAN, 0.6]) == pytest.approx((0.5, math.sqrt(0.02)))
    assert metrics.mean_std([0.7]) == pytest.approx((0.7, NAN), nan_ok=True)
    assert metrics.mean_std([]) == pytest.approx((NAN, NAN), nan_ok=True)
    assert metrics.mean_std([3.0, math.inf]) == pytest.approx((math.inf, NAN), nan_ok=True)
