"""The table of the tutorial whose shops contradict each other: what clients are served, against scikit-learn."""

import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from fedtide.settings.params import Params
from small_runs import execute

PAGE = Path(__file__).parents[2] / "docs/own_data.md"
ROUNDS, LAST = 4, 8


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the tutorial's script has written its table."""
    (code,) = re.findall(r"```python\n(# make_shops\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    folder = tmp_path_factory.mktemp("shops")
    (folder / "make_shops.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runpy.run_path("make_shops.py")
    return folder


def served(shops: Path, algorithm: str) -> pd.DataFrame:
    """Rows of ``owner_scores.csv`` of a run whose clients hold all their rows so far, trained until it changes little."""
    data = {"name": "table", "root": str(shops), "file": str(shops / "shops.csv"), "label": "sold", "client": "shop"}
    raw = {
        "data": data | {"time": "date"},
        "scenario": {"name": "calendar", "rounds_per_period": ROUNDS, "next_period": 1, "memory": 99, "last": LAST},
        "partition": "natural",
        "model": "softmax_regression",
        "algorithm": algorithm,
        "local": {"steps": 20, "batch_size": 200, "lr": 0.5},
        "client_state": {"on_session_start": "keep"},
        "costs": {"wireless": False},
        "evaluation": {"every": ROUNDS},
        "validation": 0.0,
    }
    execute(Params(raw).run(), shops / "runs", name=algorithm)
    return pd.read_csv(shops / "runs" / algorithm / "owner_scores.csv")


def expected(shops: Path, by: list[str]) -> dict[int, float]:
    """Accuracy on each month of logistic regressions fitted to all rows before it, one for each group."""
    rows = pd.read_csv(shops / "shops.csv", parse_dates=["date"])
    rows["month"], found = rows["date"].dt.month, {}
    for month in range(2, LAST + 1):
        hits = []
        for _, own in rows.assign(all=0).groupby(by):
            past, then = own[own["month"] < month], own[own["month"] == month]
            fitted = LogisticRegression(C=1e6).fit(past[["discount", "price"]], past["sold"])
            hits.append(fitted.predict(then[["discount", "price"]]) == then["sold"])
        found[month] = float(np.concatenate(hits).mean())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "by"), [pytest.param("fedavg", ["all"], marks=pytest.mark.slow), ("local", ["shop"])]
)
def test_every_month_is_within_two_points_of_scikit_learn(shops: Path, algorithm: str, by: list[str]) -> None:
    scores, wanted = served(shops, algorithm), expected(shops, by)
    months = scores["round"] // ROUNDS + 1
    for month, own in scores.groupby(months):
        accuracy = np.average(own["served_accuracy"], weights=own["rows"])
        assert accuracy == pytest.approx(wanted[int(month)], abs=0.02), month
