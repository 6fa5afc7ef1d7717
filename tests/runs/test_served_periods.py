"""What clients are served, on their own rows of the next period."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtide.records.summary import Summary
from fedtide.settings.params import Params
from small_runs import calendar, execute

MONTHS, ROUNDS = 4, 2
Run = Callable[..., tuple[Path, Summary]]


def rows(flipped: int = 0) -> pd.DataFrame:
    """Rows of ten shops, two of them contrary; `s9` comes in month 3. Rows of month ``flipped`` have the other label."""
    rng = np.random.default_rng(3)
    count = 10 * MONTHS * 16
    shop, month = np.arange(count) % 10, np.arange(count) // (count // MONTHS) + 1
    x = rng.normal(size=(count, 3))
    sold = (x[:, 0] + 0.3 * rng.normal(size=count) > 0) ^ (shop < 2)
    frame = pd.DataFrame(x.round(6), columns=["a", "b", "c"]).assign(shop=[f"s{number}" for number in shop])
    frame["day"] = [f"2025-{number:02}-{day:02}" for number, day in zip(month, rng.integers(1, 28, count), strict=True)]
    frame["sold"] = np.where(sold ^ (month == flipped), "yes", "no")
    frame["price"] = np.where(shop < 2, -1, 1) * x[:, 0]
    return frame[(frame["shop"] != "s9") | (month >= 3)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on that table, made once for each set of settings: its directory and summary."""
    known: dict[str, tuple[Path, Summary]] = {}

    def made(algorithm: Any, flipped: int = 0, **settings: Any) -> tuple[Path, Summary]:
        key = repr((algorithm, flipped, settings))
        if key not in known:
            root = tmp_path_factory.mktemp("table")
            rows(flipped).to_csv(root / "rows.csv", index=False)
            data = {
                "client": "shop",
                "time": "day",
                "split": {"share": 0.3},
                "numeric": ["a", "b", "c"],
                "categorical": [],
            }
            data |= settings.pop("of", {"label": "sold", "classes": ["no", "yes"]})
            raw = calendar(root / "rows.csv", ROUNDS, data) | {
                "scenario": {"name": "calendar", "rounds_per_period": ROUNDS, "next_period": 1},
                "local": {"steps": 5, "batch_size": 8, "lr": 0.5},
                "algorithm": algorithm,
                "client_state": {"on_session_start": "keep"},
                "evaluation": {"metrics": ["auroc", "balanced_accuracy"]},
                "engine": {"workers": 1, "accelerator": "cpu"},
                "validation": 0.0,
            }
            summary = execute(Params(raw | settings).run(), root / "runs", name="run")
            known[key] = root / "runs/run", summary
        return known[key]

    return made


def table(directory: Path, name: str) -> list[dict[str, str]]:
    with (directory / name).open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.slow
def test_a_method_that_serves_one_model_to_all_has_its_scores_to_the_bit(run: Run) -> None:
    directory, summary = run("fedavg")
    ends = table(directory, "history.csv")[ROUNDS - 1 :: ROUNDS]
    for row in ends:
        for score in ("accuracy", "loss", "auroc", "balanced_accuracy"):
            assert row[f"test_served_{score}"] == row[f"test_{score}"] != ""
            assert row[f"test_served_{score}_next"] == row[f"test_{score}_next"]
    assert dict(summary)["mean_next_served_auroc"] == dict(summary)["mean_next_auroc"]
    for line in table(directory, "session_scores.csv"):
        assert line["test_served_accuracy"] == line["test_accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "ditto", "feddrift", "local"])
def test_the_mean_over_clients_weighted_by_rows_is_the_score_over_all_rows(run: Run, algorithm: str) -> None:
    directory, _ = run(algorithm)
    clients = pd.read_csv(directory / "owner_scores.csv")
    for row in table(directory, "history.csv")[ROUNDS - 1 : -1 : ROUNDS]:
        own = clients[clients["round"] == int(row["round"])]
        accuracy, worst = own["served_accuracy"], own["served_accuracy"].nsmallest(1).mean()
        assert own["rows"].sum() == int(row["test_rows_next"])
        assert np.average(accuracy, weights=own["rows"]) == pytest.approx(float(row["test_served_accuracy_next"]))
        assert accuracy.mean() == pytest.approx(float(row["test_served_accuracy_mean_next"]))
        assert worst == pytest.approx(float(row["test_served_accuracy_worst_decile_next"]))
        if algorithm != "local":
            assert np.average(own["accuracy"], weights=own["rows"]) == pytest.approx(float(row["test_accuracy_next"]))


def test_a_global_model_that_nobody_trains_has_no_scores(run: Run) -> None:
    directory, summary = run("local")
    for row in table(directory, "history.csv"):
        assert {value for name, value in row.items() if name.startswith("test_a")} == {""}
    assert dict(summary)["final_accuracy"] is None
    assert dict(summary)["final_served_accuracy"] > 0.7


def test_a_newcomer_is_served_what_the_method_gives_newcomers(run: Run) -> None:
    """`s9` has no rows before month 3: at the end of month 2 it has the initial model, or the global one."""
    end = 2 * ROUNDS
    for algorithm in ("ditto", "feddrift"):
        own = pd.read_csv(run(algorithm)[0] / "owner_scores.csv").query(f"round == {end} and client == 's9'")
        assert own["served_accuracy"].item() == own["accuracy"].item()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ditto", "feddrift", {"name": "ifca", "clusters": 2}])
def test_labels_of_the_next_period_do_not_decide_which_model_is_served(run: Run, algorithm: Any) -> None:
    """With all labels of month 3 exchanged, the models of month 2 are right where they were wrong, and nowhere else."""
    known, changed = (pd.read_csv(run(algorithm, flipped)[0] / "owner_scores.csv") for flipped in (0, 3))
    assert known[known["round"] == ROUNDS].equals(changed[changed["round"] == ROUNDS])
    before, after = (each[each["round"] == 2 * ROUNDS]["served_accuracy"].to_numpy() for each in (known, changed))
    assert before + after == pytest.approx(1.0)


@pytest.mark.slow
def test_a_regression_has_its_scores(run: Run) -> None:
    of, local = {"label": "price", "task": "regression"}, {"steps": 5, "batch_size": 8, "lr": 0.05}
    directory, summary = run("ditto", of=of, objective="mean_squared_error", local=local, evaluation={})
    assert {"served_r2", "r2"} <= {*pd.read_csv(directory / "owner_scores.csv")}
    values = dict(summary)
    assert values["mean_next_served_mae"] < values["mean_next_mae"]
    assert values["mean_next_served_mae_worst_decile"] > values["mean_next_served_mae_mean"]
