"""What is still known of past data: by hand, and from the files of a run."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_runs import finish_again, write_run

from fedtide.records.forgetting import accuracy_matrix, forgetting
from fedtide.records.frames import load
from fedtide.report.table import tabulate

NAN = math.nan


def rows(*values):
    return np.array(values, dtype=float)


def test_two_sessions_of_one_class_each():
    """Class 0 is learned, then forgotten while class 1 is learned."""
    accuracy = rows([0.5, 0], [0.9, 0], [0.4, 0.6], [0.2, 0.8])
    held = rows([10, 0], [10, 0], [0, 5], [0, 5])
    found = forgetting(accuracy, held, np.array([1, 1, 2, 2]))
    assert accuracy_matrix(accuracy, held, np.array([1, 1, 2, 2])).tolist() == [[0.9, 0.0], [0.2, 0.8]]
    assert found == pytest.approx((0.5, -0.7, 0.7))


def test_the_data_of_a_period_weighs_the_classes():
    accuracy = rows([0.8, 0.4], [0.6, 1.0])
    found = accuracy_matrix(accuracy, rows([3, 1], [0, 2]), np.array([1, 2]))
    np.testing.assert_allclose(found, [[0.7, 0.4], [0.7, 1.0]])


def test_rounds_without_evaluation_or_test_set_are_skipped():
    """Round 1 is counted to round 2, round 3 stays, class 2 is not tested, round 4 has no evaluation any more."""
    accuracy = rows([NAN, NAN, NAN], [0.8, 0.4, NAN], [0.6, 1.0, NAN], [NAN, NAN, NAN])
    held = rows([2, 0, 7], [0, 2, 9], [1, 0, 1], [5, 5, 5])
    np.testing.assert_allclose(accuracy_matrix(accuracy, held, np.arange(4)), [[0.6, 0.8], [0.8, 0.6]])
    nothing = forgetting(accuracy[:1], held[:1], np.arange(1))
    assert all(math.isnan(value) for value in nothing)
    one = forgetting(accuracy[1:2], held[1:2], np.arange(1))
    assert (one.seen, math.isnan(one.backward), math.isnan(one.forgotten)) == (pytest.approx(0.4), True, True)


def test_only_models_since_a_period_count_as_its_best():
    """Class 1 was known best before the second period."""
    accuracy = rows([0.5, 0.9, 0.0], [0.4, 0.6, 0.0], [0.3, 0.5, 0.8])
    assert forgetting(accuracy, np.eye(3), np.arange(3)).forgotten == pytest.approx(((0.5 - 0.3) + (0.6 - 0.5)) / 2)


@given(st.integers(2, 6), st.integers(0, 9))
def test_what_is_forgotten_is_never_less_than_what_was_lost(periods, seed):
    draw = np.random.default_rng(seed)
    found = forgetting(draw.random((periods, 3)), draw.integers(1, 9, (periods, 3)).astype(float), np.arange(periods))
    assert found.forgotten >= max(0.0, -found.backward) - 1e-12
    assert 0 <= found.seen <= 1


def with_holdings(path, held):
    """Add to a run what its participants held."""
    frame = pd.read_csv(path / "per_class.csv")
    names = [name for name in frame if name.startswith("class_")]
    more = pd.DataFrame(held, columns=names)
    more.insert(0, "split", "held")
    more.insert(0, "round", np.arange(1, len(held) + 1))
    pd.concat([frame, more]).to_csv(path / "per_class.csv", index=False)
    finish_again(path)
    return frame[names].to_numpy()


def test_a_run_with_sessions_has_it_in_its_table(tmp_path):
    path = write_run(tmp_path, sessions=2, rounds=3, classes=3)
    held = np.repeat([[4, 0, 0], [0, 1, 1]], 3, axis=0)
    accuracy = with_holdings(path, held)
    table = tabulate(load([path]), last=2)
    row = table.methods.loc[("fedavg", "previous")]
    assert row["backward_mean"] == pytest.approx(accuracy[5, 0] - accuracy[2, 0])
    assert row["seen_mean"] == pytest.approx((accuracy[5, 0] + accuracy[5, 1:].mean()) / 2)
    assert [column.key for column in table.columns][3:6] == ["seen", "backward", "forgotten"]


def test_a_run_whose_data_never_changes_has_none(tmp_path):
    path = write_run(tmp_path, sessions=1, rounds=3, classes=3)
    with_holdings(path, np.ones((3, 3)))
    table = tabulate(load([path]), last=2)
    assert math.isnan(table.methods.loc[("fedavg", "previous")]["backward_mean"])
    assert "backward" not in [column.key for column in table.columns]
