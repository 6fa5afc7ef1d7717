import math

import numpy as np
import pytest
from synthetic_runs import accuracies, changed, write_run

from fedtide.records.frames import load
from fedtide.report import findings
from fedtide.report.tables.table import tabulate
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.scores import Score


def test_mean_and_deviation_over_the_complete_runs(tmp_path):
    dirs = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    dirs.append(write_run(tmp_path, seed=2, state="diverged", until=5))
    row = tabulate(load(dirs), ReportSettings(last=4)).methods.loc[("fedavg", "previous")]
    runs = np.stack([accuracies("fedavg", "previous", seed, 2, 12) for seed in (0, 1)])
    assert (row["seeds"], row["diverged"], row["unfinished"]) == (2, 1, 0)
    last, after = runs[:, -4:].mean(axis=1), runs[:, 12:22].mean(axis=1)
    assert (row["last_mean"], row["last_std"]) == pytest.approx((last.mean(), last.std(ddof=1)))
    assert row["transition_mean"] == pytest.approx(after.mean())
    assert row["drop_mean"] == pytest.approx((runs[:, 11] - runs[:, 12]).mean())


def test_columns_follow_the_sessions(tmp_path):
    changing = tabulate(load([write_run(tmp_path / "a")]), ReportSettings(last=10))
    static = tabulate(load([write_run(tmp_path / "b", sessions=1)]), ReportSettings(last=10))
    assert [column.key for column in changing.columns] == ["final", "best", "last", "transition", "drop", "bytes"]
    assert [column.key for column in static.columns][3:] == ["rounds_to_target", "bytes_to_target", "bytes"]


@pytest.mark.parametrize("target", [None, 0.585])
def test_the_target_is_given_or_nine_tenths_of_the_best(tmp_path, target):
    dirs = [write_run(tmp_path, label, sessions=1, rounds=40) for label in ("fedavg", "scaffold")]
    table = tabulate(load(dirs), ReportSettings(last=5, target=target))
    assert table.target == (target or math.floor(90 * table.methods["last_mean"].max()) / 100)
    assert f"Rounds to {100 * table.target:.3g} %" in [column.title for column in table.columns]
    reached = table.runs.set_index("label")["rounds_to_target"]
    curve = accuracies("scaffold", "previous", 0, 1, 40)
    assert reached["scaffold"] == np.argmax(curve >= table.target) + 1
    assert table.runs.set_index("label")["bytes_to_target"]["scaffold"] == reached["scaffold"] * 2 * 10 * 4 * 4810 * 2


def test_only_methods_with_the_most_complete_runs_are_called_best(tmp_path):
    dirs = [write_run(tmp_path, label, seed=seed) for label in ("fedavg", "fedprox") for seed in (0, 1)]
    dirs += [write_run(tmp_path, "scaffold", seed=0), write_run(tmp_path, "scaffold", seed=1, state="running", until=3)]
    table = tabulate(load(dirs), ReportSettings(last=10))
    last = next(column for column in table.columns if column.key == "last")
    assert table.methods["last_mean"].idxmax() == ("scaffold", "previous")
    assert table.leader(last) == ("fedprox", "previous")
    found = table.against_leader(last)
    assert found is not None
    assert found.reference == ("fedprox", "previous")
    assert table.best(last) is None  # two seeds do not separate them


def test_a_mean_over_fewer_seeds_says_how_many(tmp_path):
    dirs = [
        changed(write_run(tmp_path, seed=seed), test_auroc=value) for seed, value in enumerate((0.5, 0.7, math.nan))
    ]
    table = tabulate(load(dirs, Score("auroc")), ReportSettings(last=4))
    row = dict(table.rows())["fedavg", "previous"]
    assert (row["seeds"], row["last_seeds"], "bytes_seeds" in row) == (3, 2, False)
    cells = {column.key: column.cell(row) for column in table.columns}
    assert cells["last"] == "60.0 ± 14.1 (2 seeds)"
    assert "seeds" not in cells["bytes"]


def test_the_leader_is_among_the_methods_with_the_most_values(tmp_path):
    values = {"fedavg": (0.5, 0.6, 0.5), "scaffold": (0.9, math.nan, math.nan)}
    dirs = [
        changed(write_run(tmp_path, label, seed=seed), test_auroc=value)
        for label, each in values.items()
        for seed, value in enumerate(each)
    ]
    table = tabulate(load(dirs, Score("auroc")), ReportSettings(last=4))
    assert table.leader(next(column for column in table.columns if column.key == "last")) == ("fedavg", "previous")
    assert findings.results([table])[0] == (
        "AUROC in the last 4 rounds: no difference can be tested between fedavg 53.3 ± 5.8 % (3 seeds), "
        "scaffold 90.0 % (1 seed)."
    )


def test_seeds_become_rows_and_methods_columns_in_order(tmp_path):
    dirs = [write_run(tmp_path, label, seed=seed) for label in ("scaffold", "fedavg") for seed in (5, 3)]
    wide = tabulate(load(dirs), ReportSettings(last=10)).by_seed("final")
    assert wide.columns.tolist() == [("scaffold", "previous"), ("fedavg", "previous")]
    assert wide.index.tolist() == [3, 5]
    assert wide[("fedavg", "previous")][5] == pytest.approx(accuracies("fedavg", "previous", 5, 2, 12)[-1])
