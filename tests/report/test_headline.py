"""The report about any recorded score: directions, units, names, and runs that have not recorded it."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import changed, write_run

from fedtide.core.errors import SettingsError
from fedtide.records.frames import load
from fedtide.report import findings
from fedtide.report.build import build
from fedtide.report.parts import Contents
from fedtide.report.tables.table import tabulate
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.scores import Score


def report(dirs, out, score="accuracy", **settings):
    return build(dirs, out, Contents(ReportSettings(title="A", last=5, metric=score, **settings), "fedtide report"))


@pytest.mark.slow
def test_no_method_is_highest_where_all_are_the_same(tmp_path):
    dirs = [changed(write_run(tmp_path / "runs", label, seed=0), test_auroc=0.5) for label in ("fedavg", "scaffold")]
    two, one = (
        findings.results([tabulate(load(some, Score("auroc")), ReportSettings(last=5))]) for some in (dirs, dirs[:1])
    )
    untested = "no difference can be tested with one seed between fedavg 50.0 %, scaffold 50.0 % (1 seed)."
    assert two[0] == f"AUROC in the last 5 rounds: {untested}"
    assert one[0] == "Mean AUROC in the last 5 rounds: fedavg, 50.0 % (1 seed)."


def test_a_method_without_a_test_is_not_among_those_without_a_difference(tmp_path):
    levels = {"fedavg": (0.5, 0.6), "scaffold": (0.5, 0.7), "hot": (0.9,)}
    dirs = [
        changed(write_run(tmp_path, label, seed=seed), test_auroc=level)
        for label, each in levels.items()
        for seed, level in enumerate(each)
    ]
    (first, *_) = findings.results([tabulate(load(dirs, Score("auroc")), ReportSettings(last=5))])
    assert first == (
        "AUROC in the last 5 rounds: no difference detected between scaffold 60.0 ± 14.1 %, fedavg 55.0 ± 7.1 % (2 seeds); "
        "not tested: hot 90.0 % (1 seed)."
    )


def test_a_target_is_reached_from_above_where_lower_is_better(tmp_path):
    dirs = [write_run(tmp_path, label, sessions=1, rounds=40) for label in ("fedavg", "scaffold")]
    high, low = (
        tabulate(load(dirs, Score(name)), ReportSettings(last=5, target=goal))
        for name, goal in (("accuracy", 0.6), ("loss", 0.4))
    )
    for key in ("rounds_to_target", "bytes_to_target"):
        assert high.runs[key].tolist() == low.runs[key].tolist()
        assert np.isfinite(high.runs[key]).all()
    best = low.methods["last_mean"].min()
    default = tabulate(load(dirs, Score("loss")), ReportSettings(last=5)).target
    assert best / 0.9 <= default < best / 0.9 + 0.01
    assert "Rounds to 0.4" in [column.title for column in low.columns]


def test_a_score_of_the_next_period_is_averaged_over_the_periods(tmp_path):
    path = changed(
        write_run(tmp_path, sessions=3),
        test_auroc_next=lambda rows: rows["test_accuracy"].where(rows.index < 24),
        test_rows_next=len,
    )
    table = tabulate(load([path], Score("auroc_next")), ReportSettings(last=4))
    accuracy = pd.read_csv(path / "history.csv")["test_accuracy"]
    assert table.runs["mean_next_auroc"][0] == pytest.approx((accuracy[11] + accuracy[23]) / 2)
    assert table.columns[0].title == "AUROC on the next period, mean over the periods, %"
    assert not {"best_mean", "last_mean", "drop_mean"} & {*table.methods.columns}


@pytest.mark.parametrize(
    ("score", "remedy"),
    [
        ("macro_f1", "add macro_f1 to evaluation.metrics"),
        ("loss_next", "use scenario calendar with next_period: 1"),
        ("auroc_next", "add auroc to evaluation.metrics and use scenario calendar with next_period: 1"),
    ],
)
def test_a_run_that_has_not_recorded_the_score_is_one_line(tmp_path, score, remedy):
    path = write_run(tmp_path / "runs")
    with pytest.raises(SettingsError) as refusal:
        report([path], tmp_path / "out", score)
    assert str(refusal.value) == f"{path / 'history.csv'}: no column 'test_{score}'; {remedy} and run again"
    assert not (tmp_path / "out").exists()


def test_a_comparison_that_would_not_record_the_score_is_refused_before_training(fedtide, folder):
    for command in ("compare", "report"):
        refused = fedtide(command, "--set", "report.metric=auroc")
        assert (refused.status, len(refused.err)) == (2, 1)
        assert "report.metric = auroc: fedavg does not record it; add auroc to evaluation.metrics" in refused.err[0]
    assert not list(folder.glob("runs/*"))


def test_a_target_above_one_is_for_a_loss(fedtide):
    refused = fedtide("report", "--set", "report.target=1.5")
    assert (refused.status, len(refused.err)) == (2, 1)
    assert "target = 1.5: should be less than or equal to 1" in refused.err[0]
    assert "no runs to report" in fedtide("report", "--set", "report.target=1.5", "--set", "report.metric=loss").err[0]


@pytest.mark.slow
def test_a_score_that_is_never_determined_is_a_warning_and_no_number(tmp_path):
    dirs = [
        changed(write_run(tmp_path / "runs", label, sessions=1), test_auroc=float("nan"))
        for label in ("fedavg", "scaffold")
    ]
    summary = report(dirs, tmp_path / "out", "auroc")
    assert [line.split(" has ")[1] for line in summary.warnings] == ["no test AUROC."] * 2
    assert summary.results == ()
    assert "final_mean" not in (tmp_path / "out" / "metrics.json").read_text()
    for path in (tmp_path / "out").glob("*.csv"):
        assert "nan" not in path.read_text().lower()
    assert not re.search(r">\s*nan", summary.page.read_text(), re.IGNORECASE)
    json.loads((tmp_path / "out" / "metrics.json").read_text(), parse_constant=pytest.fail)
