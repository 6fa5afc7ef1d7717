"""Accuracy on frequent and rare classes, and figures of momentum."""

import math
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from synthetic_runs import changed, write_run

from fedtide.records.frames import load
from fedtide.records.measures.metrics import class_groups, group_accuracies
from fedtide.report.sections import curves
from fedtide.report.tables.table import tabulate
from fedtide.settings.experiment import ReportSettings

dynamics = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "experiments/fedwcm/dynamics.py")))
TAIL = {"long_tail.imbalance": 0.1}


def test_groups_are_three_tenths_rounded_up():
    assert class_groups(TAIL, 10) == {"head": [0, 1, 2], "middle": [3, 4, 5, 6], "tail": [7, 8, 9]}
    assert class_groups(TAIL | {"long_tail.order": [3, 1, 0, 2]}, 4) == {"head": [3, 1], "middle": [], "tail": [0, 2]}
    assert (
        class_groups({"long_tail.imbalance": 1.0}, 10)
        == class_groups({"long_tail.imbalance": None}, 10)
        == class_groups({}, 10)
        == {}
    )


def test_accuracies_of_groups():
    values = [0.9, 0.8, 0.7, 0.6, math.nan, 0.4, 0.3, 0.0, 0.2, 0.4]
    found = group_accuracies(values, TAIL)
    assert found == pytest.approx({"head": 0.8, "middle": 1.3 / 3, "tail": 0.2, "worst": 0.0})
    assert all(map(math.isnan, group_accuracies([], TAIL).values()))


def test_the_table_has_them_for_long_tailed_runs_only(tmp_path):
    plain, tailed = write_run(tmp_path, sessions=1), write_run(tmp_path, "fedcm", sessions=1)
    assert "tail" not in [column.key for column in tabulate(load([plain]), ReportSettings(last=3)).columns]
    table = tabulate(
        load([plain, changed(tailed, {"long_tail": {"imbalance": 0.1, "order": None}})]), ReportSettings(last=3)
    )
    assert [column.key for column in table.columns][3:7] == ["head", "middle", "tail", "worst"]
    row = table.methods.loc[("fedcm", "previous")]
    by_class = np.where(np.arange(10) % 2 == 0, 0.93, 0.02)
    assert row["head_mean"] == pytest.approx(by_class[:3].mean())
    assert row["tail_mean"] == pytest.approx(by_class[7:].mean())
    assert row["worst_mean"] == 0.02
    assert math.isnan(table.methods.loc[("fedavg", "previous"), "tail_mean"])


def test_figures_of_momentum_where_it_was_recorded(tmp_path):
    plain, own = write_run(tmp_path, sessions=1, rounds=4), write_run(tmp_path, "fedcm", sessions=1, rounds=4)
    assert dynamics.momentum(load([plain])) is None
    read = load([plain, changed(own, alpha=0.1, momentum_norm=[0.0, 1.0, 2.0, 900.0])])
    figure = dynamics.momentum(read)
    assert [axes.get_ylabel() for axes in figure.axes] == list(dynamics.COLUMNS.values())
    assert all(len(axes.lines) == 1 for axes in figure.axes)
    written = dynamics.main(tmp_path, tmp_path / "out")
    assert [path.name for path in written] == ["momentum.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


@pytest.mark.slow
def test_many_algorithms_are_compared_with_the_first(tmp_path):
    paths = [write_run(tmp_path, f"method{number}", sessions=1, rounds=4) for number in range(9)]
    chart, few = (curves.score_over_rounds(load(some)) for some in (paths, paths[:7]))
    assert [panel.title for panel in chart.panels] == [f"method{number}" for number in range(9)]
    names = [[line.name for line in panel.series] for panel in chart.panels]
    assert names == [["previous"], *[["method0", "previous"]] * 8]
    first = chart.panels[0].series[0]
    assert all(np.array_equal(panel.series[0].y, first.y) for panel in chart.panels[1:])
    assert len(few.panels) == 1
