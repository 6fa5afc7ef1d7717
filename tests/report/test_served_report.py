"""The report about what clients are served: the global model beside it, a verdict, clients served worst, own names."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import finish_again, write_run

from fedtide.records.frames import load
from fedtide.report import findings
from fedtide.report.build import ReportSummary, build
from fedtide.report.parts import Contents
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.scores import Score

SHIFT = {"fedavg": (0.0, 0.0), "ditto": (0.1, 0.3), "local": (0.1, 0.3)}
"""What clients are served above an accuracy of one half: on average, and in the worst decile above a fifth."""
NOISE = {"fedavg": (0, 0, 0), "ditto": (1, -1, 0), "local": (-1, 1, 0)}
PERIODS = ["July 2025", "August 2025", "September 2025"]


def write_served(root: Path, label: str, seed: int, shift: float, worst: float) -> Path:
    """Three periods of four rounds; 40 clients with 100 rows each, of which S03 has an accuracy of 0.1 and others 0.8."""
    path = write_run(root, label, seed=seed, sessions=3, rounds=4, classes=2)
    history = pd.read_csv(path / "history.csv")
    ends = (history["round"] % 4 == 0) & (history["session"] < 3)
    noise = 0.004 * NOISE[label][seed] + 0.001 * seed
    named = {"": shift + 0.5, "_worst_decile": worst + 0.2}
    for name, value in named.items():
        history[f"test_served_accuracy{name}_next"] = np.where(ends, value + noise, np.nan)
    untrained = label == "local"
    history = history.assign(test_accuracy_next=np.nan if untrained else np.where(ends, 0.5, np.nan))
    history = history.assign(test_rows_next=np.where(ends, 4000, np.nan))
    if untrained:
        history["test_accuracy"] = np.nan
    history.to_csv(path / "history.csv", index=False)
    owners = pd.DataFrame({"round": 4, "client": [f"S{client:02}" for client in range(40)], "rows": 100})
    owners["served_accuracy"] = np.where(owners["client"] == "S03", 0.1, 0.8)
    owners = owners if untrained else owners.assign(accuracy=0.5)
    owners.to_csv(path / "owner_scores.csv", index=False)
    (path / "encoding.json").write_text(json.dumps({"task": "classification", "outputs": ["no", "yes"]}))
    finish_again(path)
    return path


def reported(root: Path, out: str, **shifts: tuple[float, float]) -> ReportSummary:
    dirs = [
        write_served(root / out / "runs", label, seed, *each) for label, each in shifts.items() for seed in range(3)
    ]
    contents = Contents(
        ReportSettings(title="A", last=5, metric="served_accuracy_next"), "fedtide report", periods=PERIODS
    )
    return build(dirs, root / out, contents)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> ReportSummary:
    return reported(tmp_path_factory.mktemp("served"), "out", **SHIFT)


@pytest.mark.slow
def test_the_verdict_names_equals_and_those_below(found: ReportSummary) -> None:
    verdict = found.results[0]
    assert verdict.startswith(
        "Served accuracy on the next period, averaged over the periods: no difference detected between "
    )
    equals, below = verdict.split(" (3 seeds); lower: ")
    assert ("ditto 60.1" in equals, "local 60.1" in equals, "fedavg" in equals) == (True, True, False)
    assert below == "fedavg 50.1 ± 0.1 %."
    page = found.page.read_text()
    assert page.index(verdict.split(":")[0]) < page.index("Table 1.")
    table = page[page.index("Table 1.") : page.index("Table 2.")]
    assert "<b>60.1" not in table  # bold is what is separated from all others


@pytest.mark.slow
def test_a_difference_in_the_worst_decile_alone_is_the_second_sentence(tmp_path: Path) -> None:
    summary = reported(tmp_path, "out", fedavg=(0.1, 0.0), ditto=(0.1, 0.3))
    assert "no difference detected between" in summary.results[0]
    worst = "Highest mean served accuracy of the worst decile of clients on the next period: ditto, 50.1"
    assert summary.results[1].startswith(worst)


@pytest.mark.slow
def test_the_global_model_is_beside_and_absent_where_nobody_trains_it(found: ReportSummary) -> None:
    methods = pd.read_csv(found.page.with_name("table.csv")).set_index("label")
    assert methods["mean_next_accuracy_mean"][["fedavg", "ditto"]].tolist() == pytest.approx([0.5, 0.5])
    assert np.isnan(methods["mean_next_accuracy_mean"]["local"])
    (cells,) = [list(each.cells) for each in found.table.columns if each.header == "Global model, the same, %"]
    assert cells == ["50.0 ± 0.0", "50.0 ± 0.0", "\N{EN DASH}"]
    assert not [line for line in found.warnings if "has no test" in line]
    assert "of the models that clients are served" in found.page.read_text()


@pytest.mark.slow
def test_all_clients_far_below_are_named_beside_the_global_model(found: ReportSummary) -> None:
    (line,) = [line for line in found.warnings if line.startswith("Clients served worst")]
    assert "S03 10.0 %" in line
    assert "S04" not in line
    every = pd.read_csv(found.page.with_name("clients.csv")).set_index(["label", "client"])
    mean = (39 * 0.8 + 0.1) / 40
    below = (mean - 0.1) / np.sqrt(mean * (1 - mean) / 100)  # seeds share their rows
    assert every["errors_below"]["fedavg", "S03"] == pytest.approx(below)
    assert every["global"]["fedavg", "S03"] == 0.5
    assert np.isnan(every["global"]["local", "S03"])


@pytest.mark.slow
def test_classes_and_periods_have_their_own_names(found: ReportSummary) -> None:
    page = found.page.read_text()
    assert all(name in page for name in ("August 2025", '"no"', '"yes"'))
    assert "Session 2" not in page


def test_without_samples_of_clients_the_global_model_is_scored_and_the_page_says_so(tmp_path: Path) -> None:
    read = load([write_run(tmp_path)], Score("served_accuracy"))
    assert read.score.name == "accuracy"
    said = dict(findings.facts(read))["Scores"]
    assert said == "of the global model; clients have no held-out samples of their own"
