"""Searches with two aims: the trials that no other one beats in metric and communication cost."""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from searches import scores, search, table

from fedtide.settings.params import Params
from fedtide.studies.tuning.study import TuneResult
from small_runs import execute

Make = Callable[..., Params]
SPACE = {
    "communication.intervals": {"choices": ["1-4", "1-2", "2-4", "2"]},
    "communication.budget.beta": {"low": 0.2, "high": 0.8},
}
LOCAL = {"steps": 4, "batch_size": 64, "lr": 1.0}
KEYS = list(SPACE)


@pytest.fixture(scope="session")
def front(params: Make) -> Make:
    """The settings file of a search over intervals, budget and learning rate."""

    def make(tune: dict[str, Any] | None = None, **values: Any) -> Params:
        values = {"communication": "intervals", "local": LOCAL, "algorithm": "fedavg", "partition": "shards"} | values
        values["scenario"] = {"name": "static", "rounds": 3, "num_clients": 5}
        return params({"cost": "kappa", "trials": 12, "space": SPACE, **(tune or {})}, **values)

    return make


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the uninterrupted search is."""
    return tmp_path_factory.mktemp("found")


@pytest.fixture(scope="module")
def found(front: Make, home: Path) -> TuneResult:
    """An uninterrupted search of one worker."""
    return search(front(), home)


def files(home: Path) -> set[str]:
    return {path.name for path in (home / "tuning").iterdir() if path.suffix in (".csv", ".png", ".yaml", ".part")}


@pytest.mark.slow
def test_the_table_holds_what_the_runs_recorded(found: TuneResult, home: Path) -> None:
    rows = table(home, "front")
    assert found.trials == len(rows) == 12
    assert list(rows[0]) == ["run", "outcome", "validation_accuracy", "kappa", "front", *KEYS]
    for row in rows:
        assert float(row["validation_accuracy"]) == scores(home, row["run"])[-1]
        kappa = statistics.fmean(scores(home, row["run"], "kappa"))
        assert float(row["kappa"]) == pytest.approx(kappa, abs=1e-9)
    costs = {row["communication.intervals"]: float(row["kappa"]) for row in rows}
    everybody = {name: cost for name, cost in costs.items() if "-" not in name}
    assert everybody == {name: pytest.approx(1 / int(name)) for name in everybody}
    assert files(home) == {"front.csv", "front.png", "best.yaml"}


@pytest.mark.slow
def test_the_front_is_what_no_other_trial_beats(found: TuneResult, home: Path) -> None:
    points = {row["run"]: (float(row["validation_accuracy"]), float(row["kappa"])) for row in table(home, "front")}

    def beaten(run: str) -> bool:
        value, cost = points[run]
        return any(
            other >= value and price <= cost and (other, price) != points[run] for other, price in points.values()
        )

    on_it = {row["run"] for row in table(home, "front") if row["front"] == "true"}
    assert on_it == {run for run in points if not beaten(run)}
    assert 1 < len(on_it) < len(points)
    shown = [line for line in found.text.splitlines() if line.startswith("  validation_accuracy")]
    costs = [float(line.split("kappa ")[1].split()[0]) for line in shown]
    assert len(costs) == len({points[run] for run in on_it})
    assert costs == sorted(costs)


@pytest.mark.slow
def test_the_best_of_the_front_can_be_run(found: TuneResult, home: Path, tmp_path: Path) -> None:
    best = max(table(home, "front"), key=lambda row: (float(row["validation_accuracy"]), -float(row["kappa"])))
    assert best["front"] == "true"
    assert found.value == float(best["validation_accuracy"])
    assert {key: str(value) for key, value in found.best.items()} == {key: best[key] for key in KEYS}
    run = Params.read(home / "tuning" / "best.yaml").run()
    communication: Any = run.communication
    assert communication.name == "intervals"
    assert [communication.intervals, str(communication.budget.beta)] == [best[key] for key in KEYS]
    assert execute(run, tmp_path)["state"] == "complete"


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_no_trial_is_pruned_with_two_aims(found: TuneResult, front: Make, home: Path, tmp_path: Path) -> None:
    assert {row["outcome"] for row in table(home, "front")} == {"complete"}
    assert search(front({"prune": False, "trials": 1}), tmp_path).study == found.study


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_both_aims_are_made_small_where_the_metric_is_a_loss(front: Make, tmp_path: Path) -> None:
    result = search(front({"metric": "validation_loss", "trials": 4}), tmp_path)
    points = [(float(row["validation_loss"]), float(row["kappa"])) for row in table(tmp_path, "front")]
    assert result.value == min(points)[0]
    assert [row["front"] for row in table(tmp_path, "front")] == [
        str(not any(loss <= mine[0] and cost <= mine[1] and (loss, cost) != mine for loss, cost in points)).lower()
        for mine in points
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_trials_that_diverge_are_not_on_the_front(front: Make, tmp_path: Path) -> None:
    wild = {"local.lr": {"choices": [0.1, 1e30]}}
    result = search(front({"trials": 6, "space": wild}), tmp_path)
    rows = table(tmp_path, "front")
    assert {row["outcome"] for row in rows} == {"complete", "diverged"}
    for row in rows:
        diverged = row["outcome"] == "diverged"
        assert (row["validation_accuracy"] == "", row["kappa"] == "", row["front"] == "false") == (diverged,) * 3
    assert result.best == {"local.lr": 0.1}
