"""What clients spend of their privacy, in the report: cells by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_runs import finish_again, write_run

from fedtide.records import frames as records
from fedtide.records.files.guarantees import COLUMNS, write_guarantees
from fedtide.report.sections import privacy

PRESENT = {"arrival": [1, 1, 4, 4], "departure": [6, 3, 6, 5], "present": [6, 3, 3, 2]}
"""One client is there all the time, one leaves, two arrive, of which one leaves."""


def write(root: Path, label: str, seed: int, epsilon: list[float]) -> Path:
    path = write_run(root, label, seed=seed, sessions=1, rounds=6)
    rest = {name: [1.0] * 4 for name in COLUMNS[1:]}
    write_guarantees(
        path, {**rest, **PRESENT, "epsilon": epsilon, "delta": [1e-5] * 4, "sensitivity": [float("nan")] * 4}
    )
    finish_again(path)
    return path


def test_cells(tmp_path: Path) -> None:
    runs = [
        write(tmp_path, "fedavg", 0, [8.0, 4.0, 3.0, 2.0]),
        write(tmp_path, "fedavg", 1, [6.0, 4.0, 2.0, 1.0]),
        write(tmp_path, "fedprox", 0, [4.0, 2.0, 1.0, 0.0]),
        write_run(tmp_path, "scaffold", sessions=1, rounds=6),
    ]
    read = records.load(runs)
    (sheet,) = privacy.sheets_of(read)
    assert dict(sheet.rows) == {
        ("fedavg", "previous"): ["1e-05", "8", "3.75", "7", "2", "4"],
        ("fedprox", "previous"): ["1e-05", "4", "1.75", "4", "0.5", "2"],
    }


def test_runs_without_noise_have_none(tmp_path: Path) -> None:
    read = records.load([write_run(tmp_path, "fedavg")])
    assert privacy.sheets_of(read) == []


def test_a_run_that_adds_none_guarantees_nothing(tmp_path: Path) -> None:
    read = records.load([write(tmp_path, "fedavg", 0, [float("inf")] * 4)])
    assert privacy.sheets_of(read)[0].rows[0][1] == ["1e-05", *["inf"] * 5]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "fedavg", 0, [1.0] * 4)
    (path / "privacy.csv").write_text("client\n1\n")
    finish_again(path)
    with pytest.raises(records.SettingsError, match="no column 'arrival', so it was not written by a run"):
        records.load([path])
