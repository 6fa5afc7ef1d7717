"""The MLflow model of a run on a table: its signature, and MLflow's scoring server, which takes raw rows."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtide.records.final_model import load_model
from fedtide.runs.execution import execute
from fedtide.runs.mlflow.store import Store
from fedtide.runs.mlflow.upload import mirror
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params


def table(count: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"age": rng.integers(1, 90, count), "city": rng.choice(["Rome", "Oslo", "Bonn"], count)})
    frame["paid"] = rng.random(count) < 0.5
    return frame.assign(kept=np.where(frame["age"] > 40, "yes", "no"))


@pytest.fixture
def run(tmp_path: Path, mlruns: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Any]:
    """A run's directory, and its model from MLflow's store; the table is gone."""
    import mlflow.pyfunc

    monkeypatch.setenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT", "false")  # restores it after the scoring server's change
    table().to_csv(tmp_path / "rows.csv", index=False)
    data = {"name": "table", "file": str(tmp_path / "rows.csv"), "label": "kept", "root": str(tmp_path / "data")}
    static = {"name": "static", "num_clients": 2, "rounds": 2}
    settings = Params({"data": data, "scenario": static, "model": "softmax_regression", "partition": "iid"}).run()
    summary = execute(settings, Workspace(tmp_path / "runs", None, mlruns, "tests", "", True))
    (tmp_path / "rows.csv").unlink()
    store = Store(mlruns, "tests")
    (logged,) = store.client.search_logged_models([store.experiment])
    return tmp_path / "runs" / summary["run_key"], mlflow.pyfunc.load_model(logged.artifact_location)


def test_the_signature_is_the_tables_columns(run: tuple[Path, Any]) -> None:
    _, model = run
    inputs, outputs = model.metadata.get_input_schema(), model.metadata.get_output_schema()
    assert (inputs.input_names(), inputs.required_input_names()) == (["age", "paid", "city"],) * 2
    assert [(column.name, column.type.name) for column in outputs.inputs] == [
        ("prediction", "string"),
        ("probability_no", "double"),
        ("probability_yes", "double"),
    ]
    assert list(model.input_example) == ["age", "paid", "city"]
    found = model.predict(model.input_example)
    assert list(found) == outputs.input_names()


def test_the_scoring_server_takes_raw_rows(run: tuple[Path, Any]) -> None:
    from mlflow.pyfunc.scoring_server import init
    from starlette.testclient import TestClient

    directory, model = run
    raw = pd.DataFrame(
        {
            "kept": "?",
            "city": ["Rome", None, "Paris", "Oslo"],
            "age": [30, None, 50, 70.5],
            "paid": [True, False, None, True],
        }
    )
    wanted = load_model(directory).predict(raw)
    client = TestClient(init(model))

    def post(content: Any, kind: str = "application/json") -> Any:
        return client.post("/invocations", content=content, headers={"Content-Type": kind})

    for orient in ("split", "records"):
        values = json.loads(raw.to_json(orient=orient))
        answer = post(json.dumps({f"dataframe_{orient}": values}))
        assert answer.status_code == 200, answer.text
        found = pd.DataFrame(answer.json()["predictions"])
        pd.testing.assert_frame_equal(found, wanted, check_exact=True)
    stream = io.BytesIO()
    raw.to_parquet(stream)
    assert post(stream.getvalue(), "application/vnd.apache.parquet").json() == answer.json()
    one = post(json.dumps({"dataframe_records": [{"age": 30, "city": "Rome", "paid": True}]}))
    assert one.json()["predictions"][0]["prediction"] == wanted["prediction"][0]
    for content, message in (
        ({"dataframe_records": [{"age": 30, "city": "Rome"}]}, "paid"),
        (
            {"dataframe_records": [{"age": "old", "city": "Rome", "paid": True}]},
            "row 1: age is 'old', expected a number",
        ),
    ):
        answer = post(json.dumps(content))
        assert answer.status_code == 400
        assert message in answer.text


def test_a_run_that_trains_no_global_model_and_keeps_no_others_logs_none(tmp_path: Path, mlruns: Path) -> None:
    table().to_csv(tmp_path / "rows.csv", index=False)
    data = {"name": "table", "file": str(tmp_path / "rows.csv"), "label": "kept", "root": str(tmp_path / "data")}
    static = {"name": "static", "num_clients": 2, "rounds": 1}
    chosen = {"data": data, "scenario": static, "model": "softmax_regression", "partition": "iid"}
    settings = Params({**chosen, "algorithm": "local"}).run()
    summary = execute(settings, Workspace(tmp_path / "runs", None, mlruns, "tests", "", True))
    store = Store(mlruns, "tests")
    assert [run.data.tags["outcome"] for run in store.runs("")] == ["complete"]
    assert store.client.search_logged_models([store.experiment]) == []
    assert mirror([tmp_path / "runs" / summary["run_key"]], mlruns, "tests", models=tmp_path / "data") == 0
