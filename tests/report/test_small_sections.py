"""Small sections: success of attacks, privacy that clients spend, scores over communication cost, frequent and rare classes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import changed, finish_again, write_run

from fedtide.records import frames as records
from fedtide.records.files.guarantees import COLUMNS, write_guarantees
from fedtide.records.measures.metrics import class_groups, group_accuracies
from fedtide.records.measures.one_class import only_class
from fedtide.report.sections import curves, pareto, per_class, privacy
from fedtide.report.sections.attack_success import success
from fedtide.report.tables.table import tabulate
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.scores import Score

PRESENT = {"arrival": [1, 1, 4, 4], "departure": [6, 3, 6, 5], "present": [6, 3, 3, 2]}
"""One client is there all the time, one leaves, two arrive, of which one leaves."""


def spending(root: Path, label: str, seed: int, epsilon: list[float]) -> Path:
    path = write_run(root, label, seed=seed, sessions=1, rounds=6)
    rest = {name: [1.0] * 4 for name in COLUMNS[1:]}
    write_guarantees(
        path, {**rest, **PRESENT, "epsilon": epsilon, "delta": [1e-5] * 4, "sensitivity": [float("nan")] * 4}
    )
    finish_again(path)
    return path


def test_cells_of_privacy(tmp_path: Path) -> None:
    runs = [
        spending(tmp_path, "fedavg", 0, [8.0, 4.0, 3.0, 2.0]),
        spending(tmp_path, "fedavg", 1, [6.0, 4.0, 2.0, 1.0]),
        spending(tmp_path, "fedprox", 0, [4.0, 2.0, 1.0, 0.0]),
        write_run(tmp_path, "scaffold", sessions=1, rounds=6),
    ]
    read = records.load(runs)
    (sheet,) = privacy.sheets_of(read)
    assert dict(sheet.rows) == {
        ("fedavg", "previous"): ["1e-05", "8", "3.75", "7", "2", "4"],
        ("fedprox", "previous"): ["1e-05", "4", "1.75", "4", "0.5", "2"],
    }


def test_a_run_that_adds_none_guarantees_nothing(tmp_path: Path) -> None:
    read = records.load([spending(tmp_path, "fedavg", 0, [float("inf")] * 4)])
    assert privacy.sheets_of(read)[0].rows[0][1] == ["1e-05", *["inf"] * 5]


def attacked(root: Path, label: str, seed: int, level: float) -> Path:
    """A run of four rounds that is evaluated after the second and the last one."""
    path = write_run(root, label, seed=seed, sessions=1, rounds=4, every=2)
    return changed(path, attack_success=[np.nan, level, np.nan, level + 0.25])


def test_success_of_an_attack_by_round(tmp_path: Path) -> None:
    honest = write_run(tmp_path, "fedprox", sessions=1, rounds=4)
    runs = [attacked(tmp_path, "fedavg", seed, 0.5 * seed) for seed in (0, 1)]
    assert success(records.load([honest])) is None
    chart = success(records.load([*runs, honest]))
    assert chart is not None
    (line,) = chart.panels[0].series
    assert (line.x.tolist(), line.y.tolist()) == ([2.0, 4.0], [0.25, 0.5])
    assert (line.low.tolist(), line.high.tolist()) == ([0.0, 0.25], [0.5, 0.75])


def over_cost(root: Path, exchange: str = "intervals", score: str = "accuracy", **costs: float | None) -> Any:
    """Of methods with one run each, from their costs; the later the method, the better its runs."""
    for place, (label, cost) in enumerate(costs.items()):
        path = write_run(root, label, sessions=1)
        costs_known = {} if cost is None else {"kappa": cost}
        scores = {"test_accuracy": place / 10, "test_loss": 1 - place / 10}
        changed(path, {"communication": {"name": exchange}}, **scores, **costs_known)
    read = records.load(sorted(root.iterdir()), Score(score))
    return pareto.score_over_cost(read, tabulate(read, ReportSettings(last=10)))


@pytest.mark.parametrize(("score", "values"), [("accuracy", [0.1, 0.1, 0.3]), ("loss", [0.9, 0.9, 0.7])])
def test_the_front_is_what_nobody_beats(tmp_path: Path, score: str, values: list[float]) -> None:
    """a costs more than b, which is better; c is better than both, and d costs as much as c and is better."""
    found = over_cost(tmp_path, score=score, a=0.2, b=0.1, c=0.3, d=0.3)
    assert found.legend == ["Pareto front", "a", "b", "c", "d"]
    front = found.panels[0].series[0]
    assert front.x == pytest.approx([0.1, 0.3, 0.3])
    assert front.y == pytest.approx(values)


def test_it_is_drawn_where_clients_average_inside_a_round_and_its_cost_is_known(tmp_path: Path) -> None:
    assert over_cost(tmp_path / "end", "per_round", a=0.1, b=0.2) is None
    assert over_cost(tmp_path / "unknown", a=None, b=None) is None
    dots = over_cost(tmp_path / "known", a=0.1, b=0.2).panels[0].series[1:]
    assert np.concatenate([dot.x for dot in dots]) == pytest.approx([0.1, 0.2])


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
    assert "tail" not in [column.key for column in tabulate(records.load([plain]), ReportSettings(last=3)).columns]
    table = tabulate(
        records.load([plain, changed(tailed, {"long_tail": {"imbalance": 0.1, "order": None}})]), ReportSettings(last=3)
    )
    assert [column.key for column in table.columns][3:7] == ["head", "middle", "tail", "worst"]
    row = table.methods.loc[("fedcm", "previous")]
    by_class = np.where(np.arange(10) % 2 == 0, 0.93, 0.02)
    assert row["head_mean"] == pytest.approx(by_class[:3].mean())
    assert row["tail_mean"] == pytest.approx(by_class[7:].mean())
    assert row["worst_mean"] == 0.02
    assert math.isnan(table.methods.loc[("fedavg", "previous"), "tail_mean"])


@pytest.mark.slow
def test_many_algorithms_are_compared_with_the_first(tmp_path):
    paths = [write_run(tmp_path, f"method{number}", sessions=1, rounds=4) for number in range(9)]
    chart, few = (curves.score_over_rounds(records.load(some)) for some in (paths, paths[:7]))
    assert [panel.title for panel in chart.panels] == [f"method{number}" for number in range(9)]
    names = [[line.name for line in panel.series] for panel in chart.panels]
    assert names == [["previous"], *[["method0", "previous"]] * 8]
    first = chart.panels[0].series[0]
    assert all(np.array_equal(panel.series[0].y, first.y) for panel in chart.panels[1:])
    assert len(few.panels) == 1


def test_a_method_whose_model_is_right_on_one_class_only_is_named(tmp_path: Path) -> None:
    nan = math.nan
    cases = [[1.0, 0.0, 0.0], [1.0, nan, nan], [0.0, 0.0, 0.0], [1.0, 1e-3, 0.0], [1.0, 1.0, 0.0], [nan, 0.0, 1.0]]
    assert [only_class(case) for case in cases] == [0, None, None, None, None, 2]
    paths = [write_run(tmp_path, label, seed=seed, classes=3) for label in ("fedavg", "scaffold") for seed in range(2)]
    for path in paths[:3]:
        table = pd.read_csv(path / "per_class.csv").assign(class_0=0.0, class_1=1.0, class_2=0.0)
        table.to_csv(path / "per_class.csv", index=False)
        changed(path, test_accuracy=0.92)
    (line,) = per_class.one_class(records.load(paths))
    assert line.startswith(
        "fedavg · previous (2 runs), scaffold · previous (1 run): the final model is right on all test samples of class '1', "
        "92% of all, and on no other"
    )
