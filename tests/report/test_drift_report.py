"""Drifts in the report: cells by hand from small histories, and marks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import changed, write_run

from fedtide.records import frames as records
from fedtide.report import parts
from fedtide.report.build import build
from fedtide.report.charts.interactive import figure
from fedtide.report.parts import Contents, Source
from fedtide.report.sections import detections, drifts
from fedtide.report.sections.curves import score_over_rounds
from fedtide.settings.experiment import ReportSettings

CHANGED = [0, 0, 3, 0, 0, 3, 0, 0]
FALLS = {
    ("fedavg", 0): [0.8, 0.8, 0.4, 0.6, 0.8, 0.5, 0.6, 0.6],  # before 0.8, 0.68; 2 rounds, never
    ("fedavg", 1): [0.6, 0.8, 0.5, 0.7, 0.7, 0.2, 0.66, 0.7],  # before 0.7, 0.66; 1 round, 1 round
    ("oracle_reset", 0): [0.8, 0.8, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3],
}


def write(root: Path, label: str, seed: int, **columns: Any) -> Path:
    path = write_run(root, label, seed=seed, sessions=1, rounds=8)
    return changed(path, **{"test_accuracy": FALLS[label, seed], "concepts_changed": CHANGED, **columns})


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [write(tmp_path, *run) for run in FALLS]


def test_cells_are_means_over_the_drifts_of_a_seed_and_over_seeds(dirs: list[Path]) -> None:
    (sheet,) = drifts.sheets_of(records.load(dirs))
    (_, fedavg), (_, reset) = sheet.rows
    befores, dips = [(0.8 + 0.68) / 2, (0.7 + 0.66) / 2], [(0.4 + 0.5) / 2, (0.5 + 0.2) / 2]
    drop = np.array(befores) - dips
    after = [np.mean(FALLS["fedavg", seed][2:]) for seed in (0, 1)]
    spread = {name: np.std(values, ddof=1) for name, values in (("b", befores), ("d", dips), ("f", drop), ("a", after))}
    assert fedavg == [
        f"{100 * np.mean(befores):.1f} ± {100 * spread['b']:.1f}",
        f"{100 * np.mean(dips):.1f} ± {100 * spread['d']:.1f}",
        f"{100 * drop.mean():.1f} ± {100 * spread['f']:.1f}",
        "1.5 ± 0.7",  # 2 of seed 0, whose second drift does not count, and 1 of seed 1
        "3 of 4",
        f"{100 * np.mean(after):.1f} ± {100 * spread['a']:.1f}",
    ]
    assert reset == ["65.0", "15.0", "50.0", "not reached", "0 of 2", "25.0"]


def test_rounds_to_recover_are_over_the_seeds_with_a_drift_that_recovered(tmp_path: Path) -> None:
    dirs = [write(tmp_path, "fedavg", 0), write(tmp_path, "fedavg", 1, test_accuracy=FALLS["oracle_reset", 0])]
    ((_, cells),) = drifts.sheets_of(records.load(dirs))[0].rows
    assert cells[3:5] == ["2 (1 seed)", "1 of 4"]


def test_served_models_have_a_table_of_their_own(tmp_path: Path) -> None:
    one = write(tmp_path, "fedavg", 0, client_accuracy_mean=[0.5] * 8)
    other = write(tmp_path, "oracle_reset", 0, client_accuracy_mean=[0.1] * 8, served_accuracy_mean=[0.9] * 8)
    _, served = drifts.sheets_of(records.load([one, other]))
    assert [cells[0] for _, cells in served.rows] == ["50.0", "90.0"]
    assert [cells[3:5] for _, cells in served.rows] == [["0", "2 of 2"]] * 2


@pytest.mark.slow
def test_drifts_are_marked_where_all_runs_agree(dirs: list[Path]) -> None:
    chart = score_over_rounds(records.load(dirs))
    assert chart is not None
    assert chart.panels[0].drifts == (2.5, 5.5)
    shapes = figure(chart).layout.shapes
    assert {(each.x0, each.x1, each.yref) for each in shapes} == {(2.5, 2.5, "y domain"), (5.5, 5.5, "y domain")}
    changed(dirs[0], concepts_changed=[0, *CHANGED[:-1]])
    other = score_over_rounds(records.load(dirs))
    assert other is not None
    assert other.panels[0].drifts == ()


@pytest.mark.slow
def test_the_report_has_them(dirs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(dirs, out, Contents(ReportSettings(title="A", last=2), "fedtide report"))
    events = pd.read_csv(out / "drifts.csv")
    assert events["round"].tolist() == [3, 6] * 3
    assert events["rounds"].tolist() == [2, np.inf, 1, 1, np.inf, np.inf]
    page = (out / "report.html").read_text()
    assert "Drifts: reported model" in page
    assert "Dashed, vertical: a drift begins." in page
    assert detections.sheets_of(detections.per_run(records.load(dirs))) == []  # no run has a detector
    assert not (out / "alarms.csv").exists()
    assert "Triangle: an alarm" not in page


ALARMS = {("fedavg", 0): [1, 0, 0, 1, 0, 0, 0, 1], ("fedavg", 1): [0, 0, 0, 1, 1, 0, 0, 0]}


@pytest.mark.slow
def test_alarms_have_a_table_and_marks(tmp_path: Path) -> None:
    """Drifts begin in rounds 3 and 6. Alarms of a run on a round that is not evaluated lie on the line."""
    scores = [0.8, 0.8, 0.4, None, 0.8, 0.5, 0.6, 0.6]
    dirs = [write(tmp_path, *run, alarm=alarm) for run, alarm in ALARMS.items()]
    dirs.append(write(tmp_path, "oracle_reset", 0))
    changed(dirs[0], test_accuracy=scores)
    read = records.load(dirs)
    found = detections.per_run(read)
    assert found[["seed", "drifts", "detected", "delay", "false_alarms"]].to_numpy().tolist() == [
        [0, 2, 2, 1.5, 1],
        [1, 2, 1, 1, 0],
    ]
    (sheet,) = detections.sheets_of(found)
    assert [cells for _, cells in sheet.rows] == [["3 of 4", "1.2 ± 0.4", "0.5 ± 0.7"]]
    chart = score_over_rounds(read)
    assert chart is not None
    marks = [series for panel in chart.panels for series in panel.series if series.note == "alarm"]
    assert [(series.x.tolist(), series.listed) for series in marks] == [([1, 4, 8, 4, 5], False)]
    assert marks[0].y is not None
    assert marks[0].y == pytest.approx([0.8, 0.6, 0.6, 0.7, 0.7])
    source = Source.read(dirs, Contents(ReportSettings(title="A", last=2), "fedtide report"))
    assert dict(parts.frames.of(source))["detections"]["detected"].tolist() == [2, 1]
    assert "Triangle: an alarm" in parts.figures.of(source)[0].caption


@pytest.mark.slow
def test_alarms_without_a_planted_drift_are_listed_and_not_judged(tmp_path: Path) -> None:
    """One run watches its clients, the other its server; sessions of four rounds are periods with names."""
    dirs = [
        write(tmp_path, *run, alarm=alarm, session=[1] * 4 + [2] * 4, **clients)
        for (run, alarm), clients in zip(ALARMS.items(), ({"alarmed_clients": [2, *[0] * 6, 3]}, {}), strict=True)
    ]
    for path in dirs:
        pd.read_csv(path / "history.csv").drop(columns="concepts_changed").to_csv(path / "history.csv", index=False)
        changed(path, {"scenario": {"name": "calendar"}})
    read = replace(records.load(dirs), periods=("2025-06", "2025-07"))
    assert detections.per_run(read).empty
    found = detections.per_alarm(read)
    assert found[["seed", "round", "period"]].to_numpy().tolist() == [
        *([0, 1, "2025-06"], [0, 4, "2025-06"], [0, 8, "2025-07"]),
        *([1, 4, "2025-06"], [1, 5, "2025-07"]),
    ]
    (sheet,) = detections.list_of(found)
    assert sheet.headings == ["Seed", "Round", "Period", "Clients"]
    assert [cells[3] for _, cells in sheet.rows] == ["2", "0", "3", *["\N{EN DASH}"] * 2]
    first, second = detections.sentences(found)
    assert first.endswith("seed 0, 3 alarms: round 1, 2025-06; round 4, 2025-06; round 8, 2025-07.")
    assert second.endswith("seed 1, 2 alarms: round 4, 2025-06; round 5, 2025-07.")
    build(dirs, tmp_path / "out", Contents(ReportSettings(title="A", last=2), "fedtide report"))
    assert len(pd.read_csv(tmp_path / "out" / "alarms.csv")) == 5
    assert not (tmp_path / "out" / "detections.csv").exists()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "False alarms" not in page
    assert "seed 1, 2 alarms: round 4, period 1" in page
