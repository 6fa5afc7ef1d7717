"""A regression and a multilabel task from a user's table, through every command; what needs classes, refused by one line."""

import csv
import json
import re
from pathlib import Path

import pytest
from sklearn.datasets import load_diabetes

from commands import sets
from fedtide.runs.mlflow.store import Store

REGRESSION = (
    "data={name: table, file: diabetes.csv, label: target, task: regression, target_scale: 100, split: {seed: 2}}",
    "objective=mean_squared_error",
    "partition=iid",
    "scenario={name: static, num_clients: 4, rounds: 12}",
    "local={epochs: 2, batch_size: 16, lr: 0.02}",
)
MULTILABEL = (
    "data={name: table, file: diabetes.csv, labels: [high, old], task: multilabel, numeric: [bmi, bp, s1, s5, age]}",
    "objective=binary_cross_entropy",
    *REGRESSION[2:4],
    "local={epochs: 2, batch_size: 16, lr: 0.5}",
)


@pytest.fixture
def diabetes(folder):
    """442 patients: ten measurements and the progression of the disease; and two labels made of these."""
    frame = load_diabetes(as_frame=True).frame
    frame = frame.assign(high=(frame["target"] > 150).astype(int), old=(frame["age"] > 0).astype(int))
    frame.drop(columns=["high", "old"]).to_csv(folder / "diabetes.csv", index=False)
    return frame


def history(key):
    return list(csv.DictReader((Path("runs") / key / "history.csv").open()))


@pytest.mark.slow
def test_a_regression_from_a_table_to_its_report(fedtide, folder, diabetes):
    grid = ["--set", "compare={algorithms: [fedavg, scaffold], seeds: [0], workers: 1}"]
    called = fedtide("compare", "--json", *sets(*REGRESSION), *grid)
    assert called.status == 0, called.err
    summaries = json.loads(called.out[-1])
    assert any("final R²" in line and "accuracy" not in line for line in called.err)
    for summary in summaries:
        rows = history(summary["run_key"])
        assert list(rows[0])[:6] == ["round", "session", "test_r2", "test_mae", "test_loss", "train_loss"]
        assert summary["task"] == "regression"
        assert summary["final_r2"] == float(rows[-1]["test_r2"]) > 0.4  # scikit-learn's least squares: about 0.5
        assert summary["best_r2"] == max(float(row["test_r2"]) for row in rows)
        assert 0.3 < float(rows[-1]["test_mae"]) < 0.6  # in hundreds
        assert not (Path("runs") / summary["run_key"] / "per_class.csv").exists()
    assert fedtide("report", *sets(*REGRESSION), *grid).status == 0
    page = Path("report/report.html").read_text()
    assert "Final R²" in page
    assert "Test R² over communication rounds" in page
    assert "ccuracy" not in re.sub("<script.*?</script>", "", page, flags=re.DOTALL)
    assert {path.name for path in Path("report").glob("*.png")} == {
        "r2_over_rounds.png",
        "r2_over_bytes.png",
        "world.png",
    }
    numbers = json.loads(Path("report/metrics.json").read_text())
    assert numbers["scaffold/previous/final_mean"] == pytest.approx(summaries[1]["final_r2"])


@pytest.mark.slow
def test_a_regression_is_searched_by_its_validation_score(fedtide, folder, diabetes):
    options = ["--set", "tune={trials: 3, workers: 1, space: {local.lr: {low: 0.0001, high: 0.02, log: true}}}"]
    called = fedtide("tune", *sets(*REGRESSION), *options, "--set", "scenario.rounds=4")
    assert called.status == 0, called.err
    assert any("validation_r2" in line for line in (*called.err, *called.out))
    trials = list(csv.DictReader(Path("tuning/trials.csv").read_text().splitlines()))
    assert all(float(trial["value"]) < 1 for trial in trials)


@pytest.mark.slow
def test_several_labels_from_a_table_and_their_mirror(fedtide, folder, diabetes):
    diabetes.to_csv(folder / "diabetes.csv", index=False)
    called = fedtide("run", "--json", *sets(*MULTILABEL), "--set", "tracking.mlflow=true", "--mlruns", "mlruns")
    assert called.status == 0, called.err
    summary = json.loads(called.out[-1])
    rows = history(summary["run_key"])
    assert list(rows[0])[:5] == ["round", "session", "test_mean_ap", "test_loss", "train_loss"]
    assert summary["final_mean_ap"] == float(rows[-1]["test_mean_ap"]) > 0.8
    store = Store(folder / "mlruns", "fedtide")
    (run,) = store.runs("tags.run_key != ''")
    assert run.data.metrics["test_mean_ap"] == summary["final_mean_ap"]


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("algorithm=fedwcm", "algorithm = fedwcm requires classes, and a regression (objective = mean_squared_error)"),
        ("report.metric=accuracy", "accuracy: with objective mean_squared_error runs record r2, mae, loss"),
        ("objective=cross_entropy", "but data table has numbers to predict (regression); use objective"),
        ("data.task=multilabel", "task = multilabel requires labels"),
        ("data.labels=[bmi, bmi]", "labels: column 'bmi' is given twice"),
        ("data.numeric=[target]", "data.numeric: 'target' is the label"),
        ("data={name: table, file: diabetes.csv, labels: [bmi, bp], task: multilabel}", "bmi is '0.0616"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_one_line(fedtide, folder, diabetes, setting, wanted):
    assert wanted in fedtide("run", *sets(*REGRESSION, setting)).refusal
    assert not list(folder.glob("runs/*"))
