"""Runs on a real MLflow server: with the rounds as they come, never stopped by an outage, complete in the end."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from servers import MlflowServer, silent_server
from shown import EXPERIMENT, Make, artifacts, only_run, recorded, values

from fedtide.core.errors import SettingsError
from fedtide.runs.display.progress import Watch
from fedtide.runs.execution import execute
from fedtide.runs.mlflow.server import Server
from fedtide.runs.mlflow.store import Store
from fedtide.runs.mlflow.upload import mirror
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params

PREDICT = """
import json, sys
import mlflow.pyfunc, numpy
import fedtide.runs.mlflow.store

uri, address, samples = sys.argv[1:]
mlflow.set_tracking_uri(uri)
model = mlflow.pyfunc.load_model(address)
print(json.dumps(model.predict(numpy.load(samples)).tolist()))
"""


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits and credentials that a server has left there are not for other tests."""
    for name in ("HTTP_REQUEST_TIMEOUT", "HTTP_REQUEST_MAX_RETRIES", "SUPPRESS_PRINTING_URL_TO_STDOUT"):
        monkeypatch.setenv(f"MLFLOW_{name}", "")
        monkeypatch.delenv(f"MLFLOW_{name}")
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "")
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}")


@pytest.fixture(scope="module")
def server(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "mlflow.db").write_bytes(empty_store.read_bytes())
    made = MlflowServer(folder)
    yield made
    made.kill()


class Once(L.Callback):
    """Does something after a round."""

    def __init__(self, round_: int, action: Callable[[], object]) -> None:
        self.round, self.action = round_, action

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if module.state.round == self.round:
            self.action()


def assert_complete(where: Server, experiment: str, directory: Path) -> Any:
    store, run = only_run(where, experiment)
    assert (run.info.status, run.data.tags["outcome"], run.info.run_name) == ("FINISHED", "complete", directory.name)
    for column in ("session", "train_loss", "test_accuracy"):
        assert values(store, run, column) == recorded(directory, column)
    assert {"settings.json", "history.csv", "model.pt"} <= artifacts(store, run)
    return run


@pytest.fixture(scope="module")
def sent(server: MlflowServer, raw: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, Path]:
    """A server, by an address with credentials, and the directory of a run that was mirrored to it with its model."""
    runs = tmp_path_factory.mktemp("sent")
    where = Server.at(server.uri.replace("//", "//me:hunter-7Qx@"))
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("USERNAME", "PASSWORD"):
            patch.setenv(f"MLFLOW_TRACKING_{name}", "")
        patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # this is about records, on a machine that may be busy
        summary = execute(
            Params(raw).run(),
            Workspace(runs, None, where, EXPERIMENT, "both", True, "digits"),
            watch=Watch(lines.append),
        )
    assert [line for line in lines if line.startswith("MLflow")] == []
    return where, runs / summary["run_key"]


@pytest.mark.slow
def test_a_run_is_on_the_server_as_it_is_in_its_directory(sent: tuple[Server, Path]) -> None:
    where, directory = sent
    run = assert_complete(where, EXPERIMENT, directory)
    assert run.data.params["local.lr"] == "0.1"
    parent = Store(where, EXPERIMENT).client.get_run(run.data.tags["mlflow.parentRunId"])
    assert (parent.info.run_name, parent.info.status) == ("both", "FINISHED")
    inputs = {item.tags[0].value: item.dataset for item in run.inputs.dataset_inputs}
    digest = json.loads((directory / "manifest.json").read_text())["data"]
    assert {context: (item.name, item.digest) for context, item in inputs.items()} == {
        "training": ("digits train", digest[:36]),
        "testing": ("digits test", digest[:36]),
    }


@pytest.mark.slow
def test_no_credentials_are_anywhere(sent: tuple[Server, Path], server: MlflowServer) -> None:
    where, directory = sent
    assert "hunter" not in repr(where)
    for folder in (directory, server.folder):
        assert not [path for path in folder.rglob("*") if path.is_file() and b"hunter-7Qx" in path.read_bytes()]


@pytest.mark.slow
def test_the_registered_model_predicts_in_a_fresh_process_what_the_run_recorded(
    sent: tuple[Server, Path], raw: dict[str, Any], tmp_path: Path
) -> None:
    import numpy as np

    from fedtide.world.storage.prepared import load_data

    where, directory = sent
    data = load_data(Params(raw).run())
    samples = tmp_path / "samples.npy"
    np.save(samples, data.test_inputs.numpy())
    command = [sys.executable, "-c", PREDICT, where.address, "models:/digits/1", str(samples)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    probabilities = np.array(json.loads(process.stdout.splitlines()[-1]))
    assert probabilities.shape == (359, 10)
    assert probabilities.sum(1) == pytest.approx(1, abs=1e-6)
    accuracy = float((probabilities.argmax(1) == data.test_labels.numpy()).mean())
    assert accuracy == pytest.approx(recorded(directory, "test_accuracy")[-1][1], abs=1e-9)


@pytest.mark.slow
def test_a_run_does_not_wait_for_a_server_that_never_answers(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    lines: list[str] = []
    with silent_server() as uri:
        where = Workspace(tmp_path, None, Server.at(uri), EXPERIMENT)
        summary = execute(settings(), where, watch=Watch(lines.append))
    assert (summary["state"], summary["rounds"]) == ("complete", 4)
    remarks = [line for line in lines if line.startswith("MLflow")]
    assert remarks == [
        f"MLflow: {uri}: timed out; training continues without it",
        f"MLflow: {uri}: timed out; `fedtide mlflow sync` uploads the run later",
    ]


@pytest.mark.slow
def test_a_server_killed_in_the_middle_is_completed_by_mirror(
    settings: Make, empty_store: Path, tmp_path: Path
) -> None:
    (tmp_path / "mlflow.db").write_bytes(empty_store.read_bytes())
    server = MlflowServer(tmp_path)
    try:
        where, lines, runs = Server.at(server.uri.replace("//", "//me:hunter@")), list[str](), tmp_path / "runs"
        refused = f"{server.uri}: [Errno 111] Connection refused"
        summary = execute(
            settings(),
            Workspace(runs, None, where, EXPERIMENT),
            watch=Watch(lines.append, callbacks=[Once(2, server.kill)]),
        )
        assert (summary["state"], summary["rounds"]) == ("complete", 4)
        remarks = [line for line in lines if line.startswith("MLflow")]
        assert remarks[-1] == f"MLflow: {refused}; `fedtide mlflow sync` uploads the run later"
        directory = runs / summary["run_key"]
        with pytest.raises(SettingsError, match=f"{where} cannot be used: .*refused"):
            mirror([directory], where, EXPERIMENT)
        server.start()
        mirror([directory], where, EXPERIMENT)
        assert_complete(where, EXPERIMENT, directory)
    finally:
        server.kill()
