"""Searches on a calendar: every period counts, and nothing after the last one of the search does."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from searches import search
from searches import table as table_of

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import RunDirectory
from fedtide.settings.params import Params
from small_runs import calendar

pytestmark = pytest.mark.usefixtures("without_figures")
ROWS = 600


def table(path: Path, turned: int = 4, months: int = 6, later: float = 0.0) -> Path:
    """Rows whose rule is turned in one month; ``later`` is added to the feature after the fourth."""
    rng = np.random.default_rng(3)
    month, x = rng.integers(1, months + 1, ROWS), rng.normal(size=ROWS)
    label = np.where(month == turned, x < 0, x > 0).astype(int)
    when = [f"2013-{number:02}-{day:02}" for number, day in zip(month, rng.integers(1, 28, ROWS), strict=True)]
    frame = pd.DataFrame({"who": rng.integers(0, 6, ROWS), "when": when, "x": x + later * (month > 4), "label": label})
    frame.to_csv(path, index=False)
    return path


def params(root: Path, **tune: object) -> Params:
    search = {"sampler": "grid", "trials": 2, "workers": 1, "prune": False}
    search |= {"seed": 1002, "space": {"local.lr": {"choices": [1e-9, 0.2]}}}  # whose initial model has the wrong sign
    return Params(calendar(root / "rows.csv", 1, validation=0.3, local={"epochs": 2}, tune=search | tune))


def trials(root: Path) -> dict[float, float]:
    return {float(row["local.lr"]): float(row["value"]) for row in table_of(root)}


@pytest.mark.slow
def test_a_search_ranks_by_all_periods_and_not_by_the_last(tmp_path: Path) -> None:
    """In the last period of the search a model that has learned nothing is better; on the mean it is worse."""
    table(tmp_path / "rows.csv")
    result = search(params(tmp_path, until=4), tmp_path)
    assert result.best == {"local.lr": 0.2}
    found = {}
    for summary in (tmp_path / "runs").glob("*/summary.json"):
        history = RunDirectory(summary.parent).history()
        assert [row["session"] for row in history] == ["1", "2", "3", "4"]
        ends = [float(row["validation_accuracy_next"]) for row in history[:-1]]
        found[round(np.mean(ends), 9)] = ends[-1]
        assert RunDirectory(summary.parent).summary()["mean_next_accuracy"] == pytest.approx(np.mean(ends))
    values = trials(tmp_path)
    assert {round(value, 9) for value in values.values()} == found.keys()
    assert found[round(values[0.2], 9)] < found[round(values[1e-9], 9)]


@pytest.mark.slow
def test_half_of_the_periods_are_searched_and_later_rows_change_nothing(tmp_path: Path) -> None:
    found = []
    for name, later in (("one", 0.0), ("other", 5.0)):
        root = tmp_path / name
        root.mkdir()
        table(root / "rows.csv", turned=9, months=8, later=later)
        lines: list[str] = []
        search(params(root), root, lines.append)
        assert "the study uses 4 of 8 periods, 2013-01 to 2013-04 (tune.until = 4)" in lines
        assert "last" not in (root / "tuning" / "best.yaml").read_text()
        found.append(trials(root))
    assert found[0] == found[1]


def test_the_last_period_of_a_search_is_one_of_the_run(tmp_path: Path) -> None:
    table(tmp_path / "rows.csv")
    for until, message in (
        (7, r"^tune\.until = 7 should be a period of the run, 1 to 6$"),
        (1, r"^tune\.metric: there is no next period to evaluate on after tune\.until$"),
    ):
        with pytest.raises(SettingsError, match=message):
            search(params(tmp_path, until=until), tmp_path)


def test_the_default_metric_of_a_calendar_is_that_of_the_next_period(tmp_path: Path) -> None:
    assert params(tmp_path).experiment.tune.metric == "validation_served_accuracy_next"
    assert params(tmp_path).experiment.report.metric == "served_accuracy_next"
    assert params(tmp_path, metric="validation_accuracy").experiment.tune.metric == "validation_accuracy"
    own = Params({**params(tmp_path).raw, "scenario": {"name": "calendar", "next_period": 0}}).experiment
    assert (own.tune.metric, own.report.metric) == ("validation_accuracy", "accuracy")
