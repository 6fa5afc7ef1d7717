"""What a report says of runs over periods, from a planted table: the headline, its intervals, falls."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedtide.cli import stages
from fedtide.records import frames
from fedtide.records.measures import statistics
from fedtide.records.run_directory import RunDirectory
from fedtide.report.comparison import figures, report, run_directories
from fedtide.report.curves import write_curves
from fedtide.report.tables.table import tabulate
from fedtide.runs.workspace import workspace
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.params import Params
from fedtide.settings.scores import Score

RATES = {"fast": 0.1, "slow": 0.001}


def rows(count: int = 3000) -> pd.DataFrame:
    """Ten shops in six months; in the fifth the rule is another, and shop 3 always has another."""
    rng = np.random.default_rng(0)
    month, shop, x = rng.integers(1, 7, count), rng.integers(0, 10, count), rng.normal(size=count)
    turned = (month == 5) | (shop == 3)
    label = np.where(turned, x < 0, x > 0).astype(int)
    when = [f"2013-{number:02}-{day:02}" for number, day in zip(month, rng.integers(1, 28, count), strict=True)]
    z = rng.normal(size=count) + 3 * (shop == 3)
    return pd.DataFrame({"shop": [f"shop {each}" for each in shop], "when": when, "x": x, "z": z, "label": label})


def params(root: Path, **chosen: object) -> Params:
    return Params(
        {
            "data": {
                "name": "table",
                "root": str(root),
                "file": str(root / "rows.csv"),
                "client": "shop",
                "time": "when",
            },
            "scenario": {"name": "calendar", "rounds_per_period": 2},
            "partition": "natural",
            "model": "softmax_regression",
            "local": {"epochs": 1},
            "evaluation": {"clients_every": 2},
            "algorithms": {label: {"name": "fedavg", "with": {"local": {"lr": rate}}} for label, rate in RATES.items()},
            "compare": {"algorithms": list(RATES), "seeds": [0, 1], "workers": 1},
            "tracking": {"mlflow": False},
            **chosen,
        }
    )


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("periods")
    rows().to_csv(root / "rows.csv", index=False)
    chosen = params(root)
    where, lines = workspace(chosen, root / "runs", root / "worlds", None), list[str]()
    summaries, _ = stages.train(chosen, where, stages.Watch(lines.append), out=root / "outcomes.json")
    write_curves(summaries, root / "runs", root / "metrics.json", root / "curves")
    report(chosen, root / "runs", root / "worlds", root / "report", "fedtide report")
    (root / "log").write_text("\n".join(lines))
    return root


def by_hand(root: Path) -> pd.DataFrame:
    """The last accuracy on the next period of each session but the last: a row per run, named by method and seed."""
    found = {}
    for path in (root / "runs").glob("*/history.csv"):
        summary = RunDirectory(path.parent).summary()
        assert summary is not None
        ends = pd.read_csv(path).groupby("session")["test_accuracy_next"].last().iloc[:-1]
        found[summary["label"], summary["seed"]] = ends
        assert summary["mean_next_accuracy"] == pytest.approx(ends.mean())
        assert "best_accuracy" not in summary
    return pd.DataFrame(found).T


@pytest.mark.slow
def test_one_number_from_summary_to_report(reported: Path) -> None:
    means = by_hand(reported).mean(axis=1)
    table = pd.read_csv(reported / "report" / "table.csv").set_index("label")
    flat = json.loads((reported / "report" / "metrics.json").read_text())
    dvc = json.loads((reported / "metrics.json").read_text())
    outcomes = json.loads((reported / "outcomes.json").read_text())["runs"]
    for label in RATES:
        mean = means[label].mean()
        assert table.loc[label, "mean_next_served_accuracy_mean"] == pytest.approx(mean)
        assert table.loc[label, "mean_next_accuracy_mean"] == pytest.approx(mean)  # one model for all
        assert flat[f"{label}/previous/mean_next_served_accuracy_mean"] == pytest.approx(mean)
        both = ("mean_next_served_accuracy", "mean_next_accuracy")
        assert dvc[label]["previous"] == dict.fromkeys(both, pytest.approx(mean, abs=1e-6))
        for run in (run for run in outcomes if run["label"] == label):
            assert [run[name] for name in both] == pytest.approx([means[label, run["seed"]]] * 2, abs=1e-6)
            assert "best_accuracy" not in run
            value = f"{means[label, run['seed']]:.1%}"
            both_values = f"mean served accuracy on the next period {value} (global model {value})"
            line = f"{label} / previous / seed {run['seed']}  {both_values}"
            assert line in (reported / "log").read_text()
    assert not [name for name in table if name.startswith("best")]
    with (reported / "curves" / "previous.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 5  # the ends of the five periods that have a next one


@pytest.mark.slow
def test_intervals_say_what_they_are_over(reported: Path) -> None:
    ends, table = by_hand(reported), pd.read_csv(reported / "report" / "comparison.csv")
    mine = table[table["metric"] == "mean_next_served_accuracy"].set_index("over")
    assert mine["label"].unique().tolist() == ["slow"]
    gaps = (ends.loc["slow"] - ends.loc["fast"]).mean()  # over the seeds, by period
    expected = statistics.compare(pd.DataFrame({"fast": 0 * gaps, "slow": gaps}), "fast").loc["slow"]
    for name in ("pairs", "difference", "low", "high", "p"):
        assert mine.loc["periods", name] == pytest.approx(expected[name])
    assert mine.loc["seeds", "pairs"] == 2
    of_rows = mine.loc[["rows"]].set_index("period")
    assert of_rows.index.tolist() == [f"2013-{month:02}" for month in (6, 5, 4, 3, 2)]
    assert of_rows["difference"].tolist() == pytest.approx(gaps.tolist()[::-1])
    page = (reported / "report" / "report.html").read_text()
    for words in ("over seeds.", "over periods.", "over rows of 2013-06."):
        title = "Served accuracy on the next period, averaged over the periods: each method minus fast · previous"
        assert page.count(f"{title}, {words}</b>") == 1


@pytest.mark.slow
def test_a_fall_is_marked_and_logged(reported: Path) -> None:
    page, log = (reported / "report" / "report.html").read_text(), (reported / "log").read_text()
    assert "Served accuracy on 2013-05, before it is used for training, is more than 3 standard errors below" in page
    assert (
        "fast · previous · seed 0: WARNING possible concept drift: next-period accuracy for 2013-05 dropped to" in log
    )
    assert "accuracy on 2013-04" not in log


@pytest.mark.slow
def test_all_periods_count_after_a_change(reported: Path) -> None:
    read = frames.load(
        sorted(path.parent for path in (reported / "runs").glob("*/history.csv")), Score("accuracy_next")
    )
    assert read.boundaries["returning"].any()  # all shops come back every month
    changes = pd.read_csv(reported / "report" / "transitions.csv")
    assert sorted(set(changes["session"])) == [2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_score_of_the_period_itself_has_no_best(reported: Path) -> None:
    chosen = params(reported, report={"metric": "accuracy"})
    drawn = {drawing.name for drawing in figures(chosen, reported / "runs", reported / "worlds")}
    assert "accuracy_over_rounds" in drawn
    assert "accuracy_next_over_rounds" not in drawn
    table = tabulate(
        frames.load(run_directories(chosen, reported / "runs"), Score("accuracy")), ReportSettings(last=10)
    ).methods
    assert {"final_mean", "last_mean"} <= set(table)
    assert not [name for name in table if name.startswith(("best", "mean_next"))]
