"""Accuracy over simulated seconds: asynchronous runs beside runs in lockstep."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import changed, write_run

from fedtide.records import frames as records
from fedtide.records.measures import metrics
from fedtide.records.measures.sessions import Session
from fedtide.report import parts
from fedtide.report.formats import NOTHING
from fedtide.report.parts import Contents, Source
from fedtide.report.sections import seconds
from fedtide.settings.experiment import ReportSettings
from fedtide.studies.reproduce.measures import SimulatedTime

NAN = math.nan


def run(root: Path, label: str, accuracy: list[float], ends: list[float], seed: int = 0, events: bool = True) -> Path:
    """A run whose rounds end at these seconds."""
    path = write_run(root, label, seed=seed, sessions=1, rounds=len(ends))
    columns = {"test_accuracy": accuracy, "latency": np.diff(ends, prepend=0.0), "energy": 1.0, "exchanges": 2}
    if not events:
        return changed(path, **columns)
    behind = pd.DataFrame({"round": [1, 1, 2], "client": [0, 0, 3], "staleness": [0, 2, 4]})
    behind.to_csv(path / "clients.csv", index=False)
    mode = {"mode": {"name": "async", "concurrency": 4}}
    return changed(path, mode, **columns, seconds_simulated=ends, refused=1, cancelled=0)


def test_a_model_holds_from_its_second_until_the_next_evaluated_one() -> None:
    accuracy, ends = [0.1, NAN, 0.5, 0.4], [1.0, 2.0, 3.0, 3.0]
    read = [metrics.score_at(accuracy, ends, second) for second in (0.9, 1.0, 2.9, 3.0, 3.1)]
    assert read == pytest.approx([NAN, 0.1, 0.1, 0.4, NAN], nan_ok=True)
    assert metrics.seconds_to_target(accuracy, ends, 0.5) == 3.0
    assert metrics.seconds_to_target(accuracy, ends, 0.6) == math.inf


def test_methods_are_compared_at_the_end_of_the_shortest_run(tmp_path: Path) -> None:
    dirs = [
        run(tmp_path, "fedavg", [0.2, 0.6, 0.8], [2.0, 4.0, 6.0], events=False),
        run(tmp_path, "fedbuff", [0.3, 0.5, 0.7, 0.9], [1.0, 2.0, 5.0, 9.0]),
    ]
    (made,) = seconds.sheet(records.load(dirs), 0.6)
    assert made.headings == [
        "After 6 s, %",
        "Time to 60 %",
        "Updates to 60 %",
        "Uploads to 60 %",
        "Refused",
        "Cancelled",
    ]
    assert dict(made.rows) == {
        ("fedavg", "previous"): ["80.0", "4 s", "2", "4", NOTHING, NOTHING],
        ("fedbuff", "previous"): ["70.0", "5 s", "3", "6", "4", "0"],
    }
    assert "one in 1 was evaluated" in made.caption
    (without,) = seconds.sheet(records.load(dirs), NAN)
    assert without.headings == ["After 6 s, %", "Refused", "Cancelled"]


@pytest.mark.slow
def test_the_page_has_time_where_a_run_is_asynchronous_and_only_there(tmp_path: Path) -> None:
    lockstep = run(tmp_path, "fedavg", [0.2, 0.6, 0.8], [2.0, 4.0, 6.0], events=False)
    seeds = [run(tmp_path, "fedasync", [0.3, NAN, 0.7], [0.5, 0.5, 5.0 + seed], seed) for seed in (0, 1)]
    plain, both = (
        Source.read(dirs, Contents(ReportSettings(title="t", last=2), "x")) for dirs in ([lockstep], [lockstep, *seeds])
    )
    names = [{drawing.name for drawing in parts.figures.of(source)} for source in (plain, both)]
    assert names[1] - names[0] == {"accuracy_over_seconds", "staleness"}
    titles = [[sheet.title for sheet in parts.sheets.of(source)] for source in (plain, both)]
    assert [found.count("Simulated time") for found in titles] == [0, 1]
    read = both.records
    behind = seconds.staleness(read)
    assert behind is not None
    (line,) = behind.panels[0].series
    assert line.x.tolist() == [0, 1, 2, 3, 4]
    assert line.y == pytest.approx([1 / 3, 0, 1 / 3, 0, 1 / 3])


def test_a_measure_of_published_tables_reads_equal_seconds() -> None:
    accuracy = np.array([10.0, NAN, 50.0, 80.0])
    session = Session(accuracy, 0.0, np.array([1.0, 1.0, 2.0, 0.5]), accuracy, accuracy)
    measure = SimulatedTime(seconds=(1.5, 4.0), target=60.0)
    names = [quantity.title for quantity in measure.quantities]
    assert names == ["accuracy, 1.5 s", "accuracy, 4 s", "seconds", "updates"]
    assert measure.measure(session, session) == [10.0, 50.0, 4.5, 4.0]
    assert measure.center(np.array([1.0, 2.0, math.inf])) == 2.0
    assert SimulatedTime(target=90.0).measure(session, session) == [math.inf, math.inf]
