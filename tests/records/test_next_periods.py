"""Means over the next periods, and falls, by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedtide.records.measures import metrics, statistics
from fedtide.records.measures.periods import alarms, alarms_in, means_next, undefined_in
from fedtide.settings.scores import Score

NAN = math.nan


def test_the_mean_over_the_periods_is_that_of_their_ends() -> None:
    """Three periods of two, three and one rounds: 0.6 and 0.9 are the ends, 0.1 is not, and the last period has no next one."""
    assert metrics.mean_next([0.1, 0.6, 0.2, 0.9, NAN, NAN], [1, 1, 2, 2, 2, 3]) == pytest.approx(0.75)
    assert math.isnan(metrics.mean_next([0.1, 0.6, NAN, NAN], [1, 1, 2, 3]))  # a period that was not evaluated
    assert math.isnan(metrics.mean_next([NAN, NAN], [1, 1]))
    assert metrics.mean_next([0.6, NAN, NAN], [1, 2, 3], [9, 0, NAN]) == 0.6  # a period without rows


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.integers(1, 4))
def test_every_period_weighs_the_same(ends: list[float], rounds: int) -> None:
    values = [value for end in ends[:-1] for value in (*[0.0] * rounds, end)] + [NAN]
    session = [place for place in range(len(ends) - 1) for _ in range(rounds + 1)] + [len(ends)]
    assert metrics.mean_next(values, session) == pytest.approx(np.mean(ends[:-1]))


def test_every_score_of_a_history_has_its_mean() -> None:
    rows = [
        {
            "session": str(1 + place),
            "test_accuracy_next": a,
            "test_loss_next": b,
            "test_rows_next": n,
            "test_accuracy": "0",
        }
        for place, (a, b, n) in enumerate([("0.5", "1", "10"), ("0.7", "", "10"), ("", "", "")])
    ]
    assert means_next(rows, "test") == {"mean_next_accuracy": pytest.approx(0.6), "mean_next_loss": 1.0}
    assert means_next(rows, "validation") == {}
    assert undefined_in(rows) == {2: [Score("loss_next")]}  # of the third period


def test_a_fall_is_three_standard_errors_below_the_mean_of_the_last_three() -> None:
    """Three periods at 0.8 with 400 rows each: the error of a period is sqrt(0.16 / 400 + 0.16 / 1200) = 0.0231."""
    rows = np.full(4, 400.0)
    limit = 0.8 - 3 * math.sqrt(0.16 / 400 + 0.16 / 1200)
    for value, falls in ((limit + 1e-6, 0), (limit - 1e-6, 1)):
        found = alarms(np.array([0.8, 0.8, 0.8, value]), rows)
        assert len(found) == falls
        assert all((each.period, each.before) == (3, pytest.approx(0.8)) for each in found)
        assert all(each.errors == pytest.approx(3, abs=1e-3) for each in found)
    assert (
        alarms(np.array([0.1, 0.8, 0.8, 0.8, limit - 1e-6]), np.full(5, 400.0))[0].period == 4
    )  # the first is forgotten
    assert alarms(np.array([0.5, 0.9, 0.99]), np.full(3, 50.0)) == []


def test_the_alarm_of_a_run_names_the_period_that_was_tested() -> None:
    rows = [
        {"session": str(place + 1), "test_accuracy_next": a, "test_rows_next": n}
        for place, (a, n) in enumerate([("0.9", "500"), ("0.9", "500"), ("0.5", "500"), ("", "")])
    ]
    (alarm,) = alarms_in(rows)
    assert (alarm.period, alarm.value) == (3, 0.5)  # the fourth, tested at the end of the third
    assert alarms_in([]) == alarms_in([{"session": "1"}]) == []
    unscored = {"session": "2", "test_accuracy_next": "", "test_rows_next": "0"}
    later = [row | {"session": str(place)} for place, row in enumerate(rows[1:], start=3)]
    assert [each.period for each in alarms_in([rows[0], unscored, *later])] == [4]


def test_shares_of_the_same_rows_are_two_binomials() -> None:
    import pandas as pd

    frame = statistics.compare_shares(pd.Series({"a": 0.8, "b": 0.7, "c": 0.8}), 1000, "a")
    error = math.sqrt((0.8 * 0.2 + 0.7 * 0.3) / 1000)
    row = frame.loc["b"]
    assert row["low"] == pytest.approx(-0.1 - 1.959964 * error)
    assert row["high"] == pytest.approx(-0.1 + 1.959964 * error)
    assert row["p"] == pytest.approx(2 * stats.norm.sf(0.1 / error))
    assert (row["p_holm"], row["pairs"]) == (pytest.approx(3 * row["p"]), 1000)
    assert statistics.verdict(row, "row") == "lower"
    assert statistics.verdict(frame.loc["c"], "row") == "no difference detected"
