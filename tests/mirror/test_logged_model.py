"""MLflow models of runs: what they hold, and that they predict what the run's own model does."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shown import EXPERIMENT, Make

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.records.client_models import ClientModels
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.execution import execute
from fedtide.runs.mlflow.logged_model import save
from fedtide.runs.mlflow.served import _load_pyfunc as load
from fedtide.runs.mlflow.store import Store
from fedtide.runs.mlflow.upload import mirror
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.training.models.base import Model
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load_data
from support import dataset

NETWORK = """
from torch import nn
from helper_of_mine import width


class Net(nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, width()), nn.ReLU(), nn.Linear(width(), num_classes))
"""


def saved(settings: RunSettings, folder: Path, data: Dataset | None = None) -> tuple[Path, Dataset, Path]:
    """The model of a run, the run's data and its directory."""
    summary = execute(settings, Workspace(folder / "runs"))
    assert summary["state"] == "complete"
    found, directory = data or load_data(settings), folder / "runs" / summary["run_key"]
    save(directory, found, folder / "model")
    return folder / "model", found, directory


def built(folder: Path, data: Dataset, name: str, change: Callable[[Any], object] = lambda network: None) -> Any:
    """A network that ``change`` has changed, saved as that of a run in a folder."""
    plugin = plugins.load(Model, name)
    network = plugin(plugin.Settings()).build(data.input_shape, data.outputs, data.vocabulary).eval()
    with torch.no_grad():
        change(network)
    folder.mkdir()
    torch.save(network.state_dict(), folder / "model.pt")
    (folder / "settings.json").write_text(json.dumps({"model": {"name": name}}))
    return network


def loaded(folder: Path, data: Dataset) -> Any:
    """MLflow's model of that run."""
    save(folder, data, folder / "mlflow")
    return load(str(folder / "mlflow" / "data" / "data"))


def filled(value: float) -> Callable[[Any], object]:
    """All parameters of a network get this value."""
    return lambda network: [parameter.fill_(value) for parameter in network.parameters()]


def accuracy(model: Any, data: Dataset) -> float:
    predicted = model.predict(data.test_inputs.numpy()).argmax(1)
    return float((predicted == data.test_labels.numpy()).mean())


def last(directory: Path) -> float:
    return float(list(RunDirectory(directory).history())[-1]["test_accuracy"])


@pytest.mark.slow
def test_a_network_of_the_users_brings_its_sources(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow.pyfunc

    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "net_of_mine.py").write_text(NETWORK)
    (sources / "helper_of_mine.py").write_text("def width():\n    return 5\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(sources))
        path, data, directory = saved(settings(model={"name": "module", "path": "net_of_mine:Net"}), tmp_path)
    for name in ("net_of_mine", "helper_of_mine"):
        del sys.modules[name]
        (sources / f"{name}.py").unlink()
    monkeypatch.setattr(sys, "path", [*sys.path])
    model = mlflow.pyfunc.load_model(str(path))
    assert Path(sys.modules["net_of_mine"].__file__ or "").is_relative_to(path)
    assert accuracy(model, data) == pytest.approx(last(directory), abs=1e-9)


@pytest.mark.slow
def test_a_model_plugin_of_the_users_comes_along(tmp_path: Path, drop_in: None) -> None:
    data, run = dataset(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]), 3), tmp_path / "run"
    built(run, data, "point")
    assert loaded(run, data).predict(np.zeros((2, 3), np.float32)).shape == (2, 3)
    assert (run / "mlflow" / "data" / "data" / "plugins" / "models" / "point.py").is_file()


def test_vectors_and_texts_are_taken_as_they_are(tmp_path: Path) -> None:
    tokens = torch.randint(1, 20, (6, 5))
    text = Dataset("mine", "text", tokens, tokens[:, 0] % 2, tokens[:3], tokens[:3, 0] % 2, 2, "", vocabulary=20)
    vectors = dataset(torch.randn(6, 4), torch.arange(6) % 3, 3)
    for data, name in ((text, "embedding_bag"), (vectors, "softmax_regression")):
        network = built(tmp_path / name, data, name)
        found = loaded(tmp_path / name, data).predict(data.test_inputs.numpy())
        with torch.no_grad():
            expected = network(data.prepare(data.test_inputs)).softmax(1).numpy()
        assert found == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("task", "labels", "outputs"), [("regression", torch.zeros(4), 1), ("multilabel", torch.ones(4, 3), 3)]
)
def test_other_tasks_predict_what_they_are_about(task: Any, labels: torch.Tensor, outputs: int, tmp_path: Path) -> None:
    data = replace(dataset(torch.zeros(4, 3), labels, 1), task=task)
    built(tmp_path / "run", data, "softmax_regression", filled(2.0))
    found = loaded(tmp_path / "run", data).predict(np.ones((2, 3), np.float32))
    wanted = torch.full((2, outputs), 8.0)
    assert np.array_equal(found, (wanted if task == "regression" else wanted.sigmoid()).numpy())


@pytest.mark.slow
def test_a_double_precision_model_says_so(settings: Make, tmp_path: Path) -> None:
    import mlflow.pyfunc

    path, data, directory = saved(settings(engine={"precision": "64-true", "workers": 1}), tmp_path)
    model = mlflow.pyfunc.load_model(str(path))
    assert "float64" in model.metadata.signature.to_dict()["outputs"]
    assert model.predict(data.test_inputs.numpy()).dtype == np.float64
    assert accuracy(model, data) == pytest.approx(last(directory), abs=1e-12)


def models(store: Store) -> list[Any]:
    return list(store.client.search_logged_models([store.experiment]))


@pytest.mark.slow
def test_a_mirror_completes_models_once_and_only_where_the_data_is(
    settings: Make, raw: dict[str, Any], tmp_path: Path, mlruns: Path
) -> None:
    """A run without a model in MLflow, then one with it; nothing is read for a run that has it."""
    chosen = settings()
    summary = execute(chosen, Workspace(tmp_path / "runs", None, mlruns, EXPERIMENT))
    directory, store = tmp_path / "runs" / summary["run_key"], Store(mlruns, EXPERIMENT)
    assert models(store) == []
    root = Path(raw["data"]["root"])
    for place, written in ((tmp_path / "elsewhere", 0), (root, 1), (root, 1)):
        lines: list[str] = []
        mirror([directory], mlruns, EXPERIMENT, lines.append, place)
        assert len(models(store)) in (written, 1)
    assert lines == ["MLflow: 0 runs written, 1 up to date"]
    (model,) = models(store)
    (run,) = store.runs("tags.run_key != ''")
    assert (model.source_run_id, model.name) == (run.info.run_id, directory.name)
    assert str(model.status) in ("READY", "LoggedModelStatus.READY")
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]


@pytest.mark.slow
def test_trials_of_a_search_log_no_models(raw: dict[str, Any], tmp_path: Path, mlruns: Path) -> None:
    from fedtide.studies.tuning.study import tune

    params = Params({**raw, "tune": {"trials": 1, "workers": 1, "prune": False}})
    tune(params, Workspace(tmp_path / "runs", None, mlruns, EXPERIMENT, "", True, "mine"), tmp_path / "tuning")
    assert models(Store(mlruns, EXPERIMENT)) == []


def test_samples_are_predicted_by_the_model_of_a_client_that_is_named(tmp_path: Path) -> None:
    import mlflow.pyfunc

    data = dataset(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64), 2)
    folder = tmp_path / "run"
    weights = built(folder, data, "softmax_regression", filled(0.0)).state_dict()
    biased = {name: torch.zeros(2, *value.shape) for name, value in weights.items()}
    next(value for value in biased.values() if value.ndim == 2)[1, 0] = 1.0  # of the second model, of the first class
    of = torch.tensor([0, 1, -1])
    ClientModels(biased, ("ann", "bob", "cy"), ("global", "own", "newcomer"), of, -1, None).write(folder / "served.pt")
    save(folder, data, tmp_path / "model")
    assert "fedtide" not in (tmp_path / "model" / "requirements.txt").read_text()  # no index has it
    model, samples = mlflow.pyfunc.load_model(str(tmp_path / "model")), np.ones((2, 3), np.float32)
    for client, bias in (("ann", 0.0), ("bob", 1.0)):
        wanted = torch.tensor([bias, 0.0]).softmax(0).expand(2, 2)
        assert np.array_equal(model.predict(samples, params={"client": client}), wanted.numpy())
    for params, message in (({"client": "cy"}, "no model for cy"), (None, "choose a client: params={'client': NAME}")):
        with pytest.raises(SettingsError, match=message):
            model.predict(samples, params=params)


@pytest.mark.slow
def test_a_run_that_trains_no_global_model_and_keeps_no_others_logs_none(
    settings: Make, raw: dict[str, Any], tmp_path: Path, mlruns: Path
) -> None:
    summary = execute(settings(algorithm="local"), Workspace(tmp_path / "runs", None, mlruns, EXPERIMENT, "", True))
    store = Store(mlruns, EXPERIMENT)
    assert [run.data.tags["outcome"] for run in store.runs("")] == ["complete"]
    assert store.client.search_logged_models([store.experiment]) == []
    assert mirror([tmp_path / "runs" / summary["run_key"]], mlruns, EXPERIMENT, models=Path(raw["data"]["root"])) == 0
