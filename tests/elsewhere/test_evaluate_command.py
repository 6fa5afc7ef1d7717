"""``fedtide evaluate``: in its own world a model has the scores of its last round; what is another model is refused."""

import csv
import json
from pathlib import Path

import pytest

from commands import Fedtide

TABLE = "data={name: table, file: visits.csv, label: late, client: shop, time: date}"
SET = (TABLE, "scenario={name: calendar, rounds_per_period: 2}", "partition=natural", "evaluation.metrics=[auroc]")


def settings(*items: str) -> list[str]:
    return [word for item in items for word in ("--set", item)]


@pytest.fixture
def run(fedtide: Fedtide, folder: Path) -> Path:
    rows = [
        f"2024-0{1 + n % 3}-{1 + n % 28:02},shop {n % 4},{n % 7},{n % 11},{'ny'[n * n % 5 % 2]}" for n in range(480)
    ]
    (folder / "visits.csv").write_text("\n".join(["date,shop,price,items,late", *rows, ""]))
    assert fedtide("run", *settings(*SET), "--name", "visits", "--quiet").status == 0
    return folder / "runs" / "visits"


def last_row(run: Path) -> dict[str, str]:
    with (run / "history.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))[-1]


def evaluated(fedtide: Fedtide, *arguments: str) -> dict[str, float]:
    called = fedtide("evaluate", *arguments, "--json")
    assert called.status == 0, called.err
    values: dict[str, float] = json.loads(called.out[-1])
    return values


@pytest.mark.slow
def test_in_its_own_world_the_model_has_the_scores_of_its_last_round(fedtide: Fedtide, run: Path) -> None:
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    found, recorded = evaluated(fedtide, "visits"), last_row(run)
    names = [name for name in found if name in recorded]
    assert {"test_accuracy", "test_loss", "test_auroc", "test_served_accuracy", "test_served_auroc"} <= {*names}
    assert {name: found[name] for name in names} == {name: pytest.approx(float(recorded[name])) for name in names}
    assert found["test_served_accuracy_worst_decile"] <= found["test_served_accuracy_mean"]
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    assert fedtide("evaluate", str(run)).out[1].split()[0] == "test_accuracy"
    assert evaluated(fedtide, "vis") == found


@pytest.mark.slow
def test_another_period_is_that_of_a_run_that_ends_there(fedtide: Fedtide, run: Path) -> None:
    """With steps of almost nothing all runs keep the initial model, so their records say what it scores in each world."""
    still, short = [*SET, "local.lr=1e-30"], "scenario.last=2"
    assert fedtide("run", *settings(*still), "--name", "three", "--quiet").status == 0
    assert fedtide("run", *settings(*still, short), "--name", "two", "--quiet").status == 0
    found = evaluated(fedtide, "three", "--set", short)
    assert found["test_loss"] == pytest.approx(float(last_row(run.parent / "two")["test_loss"]), abs=1e-6)
    assert found["test_loss"] != pytest.approx(float(last_row(run.parent / "three")["test_loss"]), abs=1e-4)


def test_the_global_model_is_not_what_clients_with_models_of_their_own_are_served(fedtide: Fedtide, run: Path) -> None:
    assert fedtide("run", *settings(*SET, "algorithm=ditto"), "--name", "own", "--quiet").status == 0
    found, recorded = evaluated(fedtide, "own"), last_row(run.parent / "own")
    assert found["test_accuracy"] == pytest.approx(float(recorded["test_accuracy"]))
    assert "test_served_accuracy" in recorded
    assert not [name for name in found if "served" in name]


def test_another_split_is_scored_with_a_remark(fedtide: Fedtide, run: Path) -> None:
    called = fedtide("evaluate", "visits", "--set", "data.split.seed=5")
    assert called.status == 0
    assert called.err[-1].startswith("other data or another split than the run's: it may have trained on rows")


@pytest.mark.usefixtures("folder")
def test_a_run_without_a_global_model_is_refused(fedtide: Fedtide) -> None:
    given = settings("scenario={name: static, num_clients: 2, rounds: 1}", "algorithm=local")
    called = fedtide("run", *given, "--name", "own", "--quiet")
    assert called.status == 0, called.err
    refused = fedtide("evaluate", "own")
    assert (refused.status, refused.err[-1]) == (2, "fedtide: runs/own: no final global model, the run is complete")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nothing"], "runs: 'nothing': no such run; see `fedtide runs list`"),
        (
            ["visits", "--set", "model=mlp"],
            "--set model=mlp: model is that of the run; choose among data, validation, long_tail, scenario, partition, "
            "participation, drift, world_seed, evaluation",
        ),
        (
            ["visits", "--set", "data.numeric=[price]"],
            "data = table: other features or classes than in runs/visits: items",
        ),
        (["visits", "--set", "scenario.last=9"], "scenario.last = 9: the data has 3 periods"),
    ],
    ids=["run", "model", "features", "period"],
)
def test_what_is_another_problem_is_refused(fedtide: Fedtide, run: Path, arguments: list[str], line: str) -> None:
    before = sorted(run.rglob("*"))
    called = fedtide("evaluate", *arguments)
    assert (called.status, called.err[-1:]) == (2, [f"fedtide: {line}"])
    assert sorted(run.rglob("*")) == before
