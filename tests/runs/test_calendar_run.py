"""A run on a table whose rows know who made them and when."""

import json

import numpy as np
import pandas as pd
import pytest

from fedtide.settings.params import Params
from small_runs import calendar, events, execute, history

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
    raw = calendar(file, local={"epochs": 1}, evaluation={"metrics": METRICS, "splits": ["test", "validation"]})
    raw["scenario"] |= scenario
    summary = execute(Params(raw).run(), root / "runs", **({} if log is None else {"log": log.append}))
    return history(root / "runs" / summary["run_key"])


@pytest.mark.slow
def test_periods_are_sessions_and_the_next_one_is_evaluated_until_the_last(tmp_path):
    rows = play(tmp_path, table(tmp_path / "rows.csv"))
    assert [row["session"] for row in rows] == ["1", "1", "2", "2", "3", "3", "4", "4"]
    for name in (f"{split}_{name}" for split in ("test", "validation") for name in ("accuracy", "loss", *METRICS)):
        assert all(float(row[name]) >= 0 for row in rows), name
        assert [bool(row[f"{name}_next"]) for row in rows] == [True] * 6 + [False] * 2, name


@pytest.mark.slow
def test_a_session_begins_with_the_model_that_was_evaluated_ahead(tmp_path):
    rows = play(tmp_path, table(tmp_path / "rows.csv"), next_period_on="held_out")
    (run,) = (tmp_path / "runs").iterdir()
    ahead = [float(rows[round_]["test_accuracy_next"]) for round_ in (1, 3, 5)]
    assert [facts["test_accuracy"] for facts in events(run, "session")] == ahead


@pytest.mark.slow
def test_a_month_of_one_class_has_no_auroc_and_the_mean_is_that_of_the_others(tmp_path):
    frame = pd.read_csv(table(tmp_path / "rows.csv"))
    frame.loc[frame["when"].str.startswith("2013-03"), "label"] = 1
    frame.to_csv(tmp_path / "rows.csv", index=False)
    remarks: list[str] = []
    rows = play(tmp_path, tmp_path / "rows.csv", remarks)
    assert [bool(row["test_auroc_next"]) for row in rows[1::2]] == [True, False, True, False]
    (file,) = (tmp_path / "runs").glob("*/summary.json")
    ends = [float(rows[round_]["test_auroc_next"]) for round_ in (1, 5)]
    assert json.loads(file.read_text())["mean_next_auroc"] == pytest.approx(np.mean(ends))
    said = "the rows of 2013-03 do not define AUROC; means over the periods are without it"
    assert any(line.endswith(said) for line in remarks)
