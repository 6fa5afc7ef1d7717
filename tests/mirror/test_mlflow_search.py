"""Trials of a search in MLflow, and what is imported for neither."""

from pathlib import Path
from typing import Any

import pytest

from fedtide.records.run_directory import RunDirectory
from fedtide.runs.display.progress import Watch
from fedtide.runs.mlflow.store import Store
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.studies.tuning.study import tune


def artifacts(store: Store, run: str) -> dict[str, bytes]:
    return {
        item.path: Path(store.client.download_artifacts(run, item.path)).read_bytes()
        for item in store.client.list_artifacts(run)
    }


@pytest.mark.slow
@pytest.mark.parametrize("cost", [None, "kappa"])
def test_what_a_search_found_is_at_its_own_run(raw: dict[str, Any], tmp_path: Path, mlruns: Path, cost: Any) -> None:
    space = {"local.steps": {"choices": [1, 4]}, "local.lr": {"low": 0.001, "high": 1.0, "log": True}}
    search = {"trials": 5, "workers": 1, "space": space, "cost": cost, "pruner": {"n_startup_trials": 1}}
    params = Params({**raw, "tune": search})
    place, out = Workspace(tmp_path / "runs", None, mlruns, "tests"), tmp_path / "tuning"
    found = tune(params, place, out)

    store = Store(mlruns, "tests")
    run = store.client.get_run(store.parent(found.study))
    tables = {"front.csv", "front.png"} if cost else {"trials.csv", "history.png", "importance.png"}
    assert artifacts(store, run.info.run_id) == {name: (out / name).read_bytes() for name in {*tables, "best.yaml"}}
    assert {key: run.data.tags[f"best {key}"] for key in space} == {key: str(found.best[key]) for key in space}
    assert run.data.metrics["best_validation_accuracy"] == found.value
    children = store.runs(f"tags.mlflow.parentRunId = '{run.info.run_id}'")
    assert {each.info.status for each in children} == {"FINISHED"}
    states = {path.name: (RunDirectory(path).summary() or {})["state"] for path in (tmp_path / "runs").iterdir()}
    assert {each.info.run_name: each.data.tags["outcome"] for each in children} == states
    assert set(states.values()) == ({"complete"} if cost else {"complete", "pruned"})
    complete = sum(state == "complete" for state in states.values())
    assert (len(children), run.data.metrics["trials"], run.data.metrics["complete"]) == (5, 5, complete)
    best = RunDirectory(tmp_path / "runs" / run.data.tags["best_run"]).history()
    assert float(list(best)[-1]["validation_accuracy"]) == found.value
    if cost:
        rows = (out / "front.csv").read_text().splitlines()
        assert run.data.metrics["front"] == sum(",true," in row for row in rows)
        assert run.data.metrics["best_kappa"] == pytest.approx(1 / int(str(found.best["local.steps"])))


@pytest.mark.slow
def test_a_search_does_not_suffer_from_a_store_that_cannot_be_used(raw: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mlruns").write_text("in the way")
    params = Params({**raw, "tune": {"trials": 2, "workers": 1, "cost": "kappa"}})
    lines: list[str] = []
    place = Workspace(tmp_path / "runs", None, tmp_path / "mlruns", "tests")
    tune(params, place, tmp_path / "tuning", Watch(lines.append))
    assert lines[-1].startswith("MLflow: ")
    assert lines[-1].endswith("; the files of the search are complete")
    assert (tmp_path / "tuning" / "front.png").is_file()
