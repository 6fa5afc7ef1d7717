"""What is still known of past data: by hand, estimated, and from the files of a run."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_runs import changed, finish_again, write_run

from fedtide.core.errors import SettingsError
from fedtide.records.frames import load
from fedtide.records.measures.forgetting import accuracy_matrix, forgetting, matrix
from fedtide.report.sections.earlier import session_scores
from fedtide.report.tables.table import tabulate
from fedtide.runs.check import check_run
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.scores import Score

NAN = math.nan


def rows(*values):
    return np.array(values, dtype=float)


def test_the_data_of_a_period_weighs_the_classes():
    accuracy = rows([0.8, 0.4], [0.6, 1.0])
    found = accuracy_matrix(accuracy, rows([3, 1], [0, 2]), np.array([1, 2]))
    np.testing.assert_allclose(found, [[0.7, 0.4], [0.7, 1.0]])


def test_rounds_without_evaluation_or_test_set_are_skipped():
    """Round 1 is counted to round 2, round 3 stays, class 2 is not tested, round 4 has no evaluation any more."""
    accuracy = rows([NAN, NAN, NAN], [0.8, 0.4, NAN], [0.6, 1.0, NAN], [NAN, NAN, NAN])
    held = rows([2, 0, 7], [0, 2, 9], [1, 0, 1], [5, 5, 5])
    np.testing.assert_allclose(accuracy_matrix(accuracy, held, np.arange(4)), [[0.6, 0.8], [0.8, 0.6]])
    nothing = forgetting(accuracy_matrix(accuracy[:1], held[:1], np.arange(1)))
    assert all(math.isnan(value) for value in nothing)
    one = forgetting(accuracy_matrix(accuracy[1:2], held[1:2], np.arange(1)))
    assert (one.seen, math.isnan(one.backward), math.isnan(one.forgotten)) == (pytest.approx(0.4), True, True)


def test_only_models_since_a_period_count_as_its_best():
    """Class 1 was known best before the second period."""
    accuracy = rows([0.5, 0.9, 0.0], [0.4, 0.6, 0.0], [0.3, 0.5, 0.8])
    found = forgetting(accuracy_matrix(accuracy, np.eye(3), np.arange(3)))
    assert found.forgotten == pytest.approx(((0.5 - 0.3) + (0.6 - 0.5)) / 2)


MEASURED = rows([0.8, NAN, NAN, NAN], [0.9, 0.6, NAN, NAN], [0.7, 0.5, 0.9, NAN], [0.4, 0.7, 0.8, 0.6])


def test_the_three_measures_of_a_matrix_written_by_hand():
    """The best score of session 2 is that of the last model, which is not among those that it is compared with.

    Signs mean the same where lower is better.
    """
    found = forgetting(MEASURED)
    assert found.seen == pytest.approx((0.4 + 0.7 + 0.8 + 0.6) / 4)
    assert found.backward == pytest.approx(((0.4 - 0.8) + (0.7 - 0.6) + (0.8 - 0.9)) / 3)
    assert found.forgotten == pytest.approx(((0.9 - 0.4) + (0.6 - 0.7) + (0.9 - 0.8)) / 3)
    mirrored = forgetting(1 - MEASURED, sign=-1)
    assert mirrored == pytest.approx((1 - found.seen, found.backward, found.forgotten))


def test_sessions_in_which_a_score_is_undefined_do_not_count():
    A = MEASURED.copy()
    A[:, 1] = NAN
    found = forgetting(A)
    assert found.seen == pytest.approx((0.4 + 0.8 + 0.6) / 3)
    assert found.backward == pytest.approx(((0.4 - 0.8) + (0.8 - 0.9)) / 2)


@given(st.integers(2, 6), st.integers(0, 9))
def test_what_is_forgotten_is_never_less_than_what_was_lost(periods, seed):
    draw = np.random.default_rng(seed)
    held = draw.integers(1, 9, (periods, 3)).astype(float)
    found = forgetting(accuracy_matrix(draw.random((periods, 3)), held, np.arange(periods)))
    assert found.forgotten >= -found.backward - 1e-12
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
    table = tabulate(load([path]), ReportSettings(last=2))
    row = table.methods.loc[("fedavg", "previous")]
    assert row["backward_estimated_mean"] == pytest.approx(accuracy[5, 0] - accuracy[2, 0])
    assert row["seen_estimated_mean"] == pytest.approx((accuracy[5, 0] + accuracy[5, 1:].mean()) / 2)
    shown = table.columns[3:6]
    assert [column.key for column in shown] == ["seen_estimated", "backward_estimated", "forgotten_estimated"]
    assert all("(estimate)" in column.title for column in shown)
    assert math.isnan(row["backward_mean"])


def with_scores(path, A, column="test_accuracy"):
    """Add to a run the scores of the models at the ends of its sessions."""
    pairs = [(session, tested) for session in range(len(A)) for tested in range(session + 1)]
    frame = pd.DataFrame(pairs, columns=["session", "tested"]) + 1
    frame.insert(0, "round", 3 * frame["session"])
    frame[column] = [A[pair] for pair in pairs]
    frame.to_csv(path / "session_scores.csv", index=False)
    finish_again(path)
    return path


def test_a_run_whose_sessions_have_test_samples_is_measured(tmp_path):
    path = write_run(tmp_path, sessions=4, rounds=3, classes=3)
    with_holdings(path, np.ones((12, 3)))
    found = load([with_scores(path, MEASURED)])
    np.testing.assert_array_equal(matrix(found.session_scores, "test_accuracy"), MEASURED)
    table = tabulate(found, ReportSettings(last=2))
    row = table.methods.loc[("fedavg", "previous")]
    names = ("seen", "backward", "forgotten")
    assert [row[f"{name}_mean"] for name in names] == pytest.approx(list(forgetting(MEASURED)))
    assert all(math.isnan(row[f"{name}_estimated_mean"]) for name in names)
    titles = [column.title for column in table.columns][3:6]
    assert titles == ["All sessions so far, %", "Backward transfer, points", "Forgetting, points"]


def test_all_seeds_are_measured_or_all_are_estimated(tmp_path):
    """In one of two seeds all sessions happen to evaluate the same labels."""
    dirs = [write_run(tmp_path, seed=seed, sessions=4, rounds=3, classes=3) for seed in range(2)]
    for path in dirs:
        with_holdings(path, np.ones((12, 3)))
    with_scores(dirs[0], MEASURED)
    row = tabulate(load(dirs), ReportSettings(last=2)).methods.loc[("fedavg", "previous")]
    assert math.isnan(row["backward_mean"])
    assert math.isfinite(row["backward_estimated_std"])
    assert not any(name.endswith("_seeds") for name in row.index)


def test_a_score_of_the_next_period_is_measured_by_the_sessions_own(tmp_path):
    path = write_run(tmp_path, sessions=4, rounds=3, classes=3)
    with_scores(changed(path, test_loss_next=0.5), MEASURED, "test_loss")
    found = load([path], Score("loss_next")).forgetting[path.name]
    assert found == pytest.approx(forgetting(MEASURED, sign=-1))


@pytest.mark.parametrize(("lines", "wrong"), [
    ([0, 1, 2, 4, 5], "row 4 is session 3 tested on 2 instead of 3 on 1"),
    ([0, 1, 1, 2], "row 3 is session 2 tested on 1 instead of 2 on 2"),
    ([1, 2], "row 1 is session 2 tested on 1 instead of 1 on 1"),
])  # fmt: skip
def test_missing_and_doubled_rows_are_refused(tmp_path, lines, wrong):
    path = with_scores(write_run(tmp_path, sessions=4, rounds=3), MEASURED)
    kept = pd.read_csv(path / "session_scores.csv").iloc[lines]
    kept.to_csv(path / "session_scores.csv", index=False)
    finish_again(path)
    with pytest.raises(SettingsError, match=rf"session_scores.csv: {wrong}: rows are missing"):
        load([path])


def test_a_changed_file_is_refused(tmp_path):
    path = with_scores(write_run(tmp_path, sessions=4, rounds=3), MEASURED)
    file = path / "session_scores.csv"
    file.write_text(file.read_text().replace("0.9", "0.8", 1))
    with pytest.raises(SettingsError, match=r"session_scores.csv was changed"):
        load([path])
    assert any("session_scores.csv" in problem for problem in check_run(path).problems)


def test_the_figure_has_a_matrix_per_method(tmp_path):
    paths = [
        with_scores(write_run(tmp_path, seed=seed, sessions=4, rounds=3), MEASURED - seed / 10) for seed in range(2)
    ]
    paths += [with_scores(write_run(tmp_path, "scaffold", sessions=4, rounds=3), MEASURED)]
    chart = session_scores(load(paths))
    assert [panel.title for panel in chart.panels] == ["fedavg", "scaffold"]
    cells = [panel.cells for panel in chart.panels]
    np.testing.assert_allclose(cells[0].values, MEASURED - 0.05)
    np.testing.assert_allclose(cells[1].values, MEASURED)
    assert all((each.low, each.high) == pytest.approx((0.35, 0.9)) and each.written for each in cells)
    assert session_scores(load([write_run(tmp_path / "other", sessions=4, rounds=3)])) is None


def test_a_run_whose_data_never_changes_has_none(tmp_path):
    path = write_run(tmp_path, sessions=1, rounds=3, classes=3)
    with_holdings(path, np.ones((3, 3)))
    table = tabulate(load([path]), ReportSettings(last=2))
    assert math.isnan(table.methods.loc[("fedavg", "previous")]["backward_mean"])
    assert not {"backward", "backward_estimated"} & {column.key for column in table.columns}
