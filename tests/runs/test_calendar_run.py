"""A run on a table whose rows know who made them and when."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from fedtide.settings.params import Params
from small_runs import execute

METRICS = ["balanced_accuracy", "macro_f1", "auroc", "calibration_error"]


def table(path, later=0.0):
    """Rows of 12 clients over four months; ``later`` is added to the feature after the second."""
    rng = np.random.default_rng(5)
    month = rng.integers(1, 5, 800)
    x = rng.normal(size=800)
    label = (x + rng.normal(size=800) > 0).astype(int)
    when = [f"2013-{number:02}-{day:02}" for number, day in zip(month, rng.integers(1, 28, 800), strict=True)]
    frame = pd.DataFrame({"who": rng.integers(0, 12, 800), "when": when, "x": x + later * (month > 2), "label": label})
    frame.to_csv(path, index=False)
    return path


def play(root, file, log=None, **scenario):
    params = Params(
        {
            "data": {"name": "table", "root": str(root), "file": str(file), "client": "who", "time": "when"},
            "scenario": {"name": "calendar", "rounds_per_period": 2, **scenario},
            "partition": {"name": "natural"},
            "model": {"name": "softmax_regression"},
            "local": {"epochs": 1},
            "evaluation": {"metrics": METRICS, "splits": ["test", "validation"]},
        }
    )
    summary = execute(params.run(), root / "runs", **({} if log is None else {"log": log.append}))
    with (root / "runs" / summary["run_key"] / "history.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    root = tmp_path_factory.mktemp("calendar")
    return play(root, table(root / "rows.csv"))


def test_periods_are_sessions(history):
    assert [row["session"] for row in history] == ["1", "1", "2", "2", "3", "3", "4", "4"]


@pytest.mark.parametrize("split", ["test", "validation"])
@pytest.mark.parametrize("name", ["accuracy", "loss", *METRICS])
def test_the_next_period_is_evaluated_until_the_last(history, split, name):
    assert all(float(row[f"{split}_{name}"]) >= 0 for row in history)
    assert [bool(row[f"{split}_{name}_next"]) for row in history] == [True] * 6 + [False] * 2


def test_a_session_begins_with_the_model_that_was_evaluated_ahead(tmp_path):
    history = play(tmp_path, table(tmp_path / "rows.csv"), next_period_on="held_out")
    (log,) = (tmp_path / "runs").glob("*/events.jsonl")
    starts = [facts for line in log.read_text().splitlines() if (facts := json.loads(line))["event"] == "session"]
    ahead = [float(history[round_]["test_accuracy_next"]) for round_ in (1, 3, 5)]
    assert [facts["test_accuracy"] for facts in starts] == ahead


def test_a_month_of_one_class_has_no_auroc_and_the_mean_is_that_of_the_others(tmp_path):
    frame = pd.read_csv(table(tmp_path / "rows.csv"))
    frame.loc[frame["when"].str.startswith("2013-03"), "label"] = 1
    frame.to_csv(tmp_path / "rows.csv", index=False)
    remarks: list[str] = []
    history = play(tmp_path, tmp_path / "rows.csv", remarks)
    assert [bool(row["test_auroc_next"]) for row in history[1::2]] == [True, False, True, False]
    (file,) = (tmp_path / "runs").glob("*/summary.json")
    ends = [float(history[round_]["test_auroc_next"]) for round_ in (1, 5)]
    assert json.loads(file.read_text())["mean_next_auroc"] == pytest.approx(np.mean(ends))
    assert any(
        line.endswith("the rows of 2013-03 do not define AUROC; means over the periods are without it")
        for line in remarks
    )
