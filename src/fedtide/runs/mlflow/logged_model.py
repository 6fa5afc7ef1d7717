"""The final model of a run as an MLflow model: it takes rows of a table, or samples as the dataset has them."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedtide.core import plugins
from fedtide.core.discovery.source import source_file
from fedtide.core.errors import SettingsError
from fedtide.records.client_models import ClientModels
from fedtide.records.final_model import clients_of
from fedtide.records.run_directory import MODEL, SERVED, RunDirectory, read_json
from fedtide.runs.mlflow.served import DESCRIPTION, PLUGINS
from fedtide.runs.mlflow.store import Store
from fedtide.settings.params import parse
from fedtide.training.models.base import Model
from fedtide.world.adapters.encoding import Encoding
from fedtide.world.dataset import Dataset, constants_of

_LOADER = "fedtide.runs.mlflow.served"
_EXAMPLES = 2
_PACKAGES = ("mlflow", "numpy", "torch")
"""Not fedtide itself: no index has it, so whoever registers its name would be installed in MLflow's environments."""


def log_model(store: Store, run: str, folder: Path, data: Dataset, register: str | None) -> None:
    """Log the final model of a complete run as its output, and perhaps a version of a registered model.

    Args:
        run: its id in MLflow. folder: its run directory. data: the dataset, not yet moved to a device.
        register: name of the registered model, created if missing, or None.

    Raises:
        SettingsError: its settings are not those of a model here, since another version recorded them; nothing is logged.
    """
    from mlflow.entities import LoggedModelOutput

    facts, settings = (read_json(folder / name) or {} for name in ("manifest.json", "settings.json"))
    tags = {"algorithm": str(facts["label"]), "dataset": str(facts["dataset"])}
    _model(settings)
    chosen = {f"model.{key}": json.dumps(value).strip('"') for key, value in settings["model"].items()}
    model = store.client.create_logged_model(store.experiment, folder.name, run, tags, chosen)
    with tempfile.TemporaryDirectory() as made:
        save(folder, data, Path(made) / "model", model)
        store.client.log_model_artifacts(model.model_id, str(Path(made) / "model"))
    store.client.finalize_logged_model(model.model_id, "READY")
    if register is not None:
        _register(store, register, model, run)
    # Last: the run's output tells that all of this was done.
    store.client.log_outputs(run, [LoggedModelOutput(model.model_id, int(facts["rounds"]))])


def save(folder: Path, data: Dataset, path: Path, logged: Any = None) -> None:
    """Write the final model of a run directory as an MLflow model in a folder.

    It holds the weights, those of clients too if they are served models of their own, what the network is built from, sources
    of the user's that it needs, and a few samples, or with an encoding rows that are nobody's; to load it takes fedtide, of the
    version in its metadata, and the packages in its ``requirements.txt``.
    """
    import mlflow.pyfunc
    from mlflow.models import Model as Card

    settings = read_json(folder / "settings.json") or {}
    model, chosen = _model(settings), settings["model"]
    encoding = data.encoding if isinstance(data.encoding, Encoding) else None
    with tempfile.TemporaryDirectory() as made:
        contents, code = Path(made) / "data", Path(made) / "code"
        contents.mkdir()
        clients, _ = clients_of(RunDirectory(folder))
        for name in (MODEL, SERVED) if clients is not None else (MODEL,):
            shutil.copy(folder / name, contents)
        description = {"model": chosen, "constants": constants_of(data)}
        description |= {"input_shape": data.input_shape, "outputs": data.outputs}
        (contents / DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")
        _copy_plugin(chosen["name"], contents / PLUGINS)
        mlflow.pyfunc.save_model(
            path,
            loader_module=_LOADER,
            data_path=str(contents),
            code_paths=_copy_sources(model, code),
            pip_requirements=list(_requirements(model, () if encoding is None else ("pandas",))),
            signature=_signature(folder, data, clients) if encoding is None else _signature_of_rows(encoding, clients),
            input_example=data.test_inputs[:_EXAMPLES].numpy() if encoding is None else _example(encoding, clients),
            metadata={"fedtide": version("fedtide")},
            mlflow_model=Card() if logged is None else Card(model_id=logged.model_id, run_id=logged.source_run_id),
        )


def _model(settings: dict[str, Any]) -> Model:
    """The model that recorded settings choose."""
    chosen = settings.get("model")
    if not isinstance(chosen, dict) or "name" not in chosen:
        raise SettingsError("its settings.json has no model.name")
    plugin = plugins.load(Model, chosen["name"])
    return plugin(parse(plugin.Settings, chosen, "model in its settings.json"))


def _signature(folder: Path, data: Dataset, clients: ClientModels | None) -> Any:
    """Of arrays, from what is recorded: nothing that a run names is imported to look at it."""
    import numpy as np
    import torch
    from mlflow.models import ModelSignature
    from mlflow.types import DataType, ParamSchema, ParamSpec, Schema, TensorSpec

    weights = torch.load(folder / MODEL, weights_only=True, mmap=True)
    params: Any = None if clients is None else ParamSchema([ParamSpec("client", DataType.string, None)])
    double = any(value.dtype == torch.float64 for value in weights.values())
    return ModelSignature(
        Schema([TensorSpec(data.test_inputs.numpy().dtype, (-1, *data.input_shape))]),
        Schema([TensorSpec(np.dtype("float64" if double else "float32"), (-1, data.outputs))]),
        params,
    )


def _example(encoding: Encoding, clients: ClientModels | None) -> Any:
    """Rows that are nobody's, or of a client that has a model where there is none for others."""
    rows = encoding.example()
    if clients is not None and clients.column is not None:
        served = (name for name, model in zip(clients.owners, clients.of.tolist(), strict=True) if model >= 0)
        rows[clients.column] = "a newcomer" if clients.newcomer >= 0 else next(served)
    return rows


def _signature_of_rows(encoding: Encoding, clients: ClientModels | None) -> Any:
    """The table's columns, and that of the owners where rows are served by it; all required. Types are the encoding's business.

    MLflow refuses integers for floating-point numbers, and a column of missing values for one of texts.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import AnyType

    any_type: Any = AnyType  # it has no types
    columns = [each.column for each in encoding.columns]
    columns += [] if clients is None or clients.column is None else [clients.column]
    types = {str: DataType.string, int: DataType.long, float: DataType.double}
    return ModelSignature(
        Schema([ColSpec(any_type(), name) for name in dict.fromkeys(columns)]),
        Schema([ColSpec(types[kind], name) for name, kind in encoding.predicted.items()]),
    )


def _requirements(model: Model, others: Sequence[str]) -> Iterator[str]:
    for name in dict.fromkeys((*_PACKAGES, *others, *sorted(model.libraries()))):
        try:
            yield f"{name}=={version(name).partition('+')[0]}"
        except PackageNotFoundError:  # found without being installed
            continue


def _copy_sources(model: Model, to: Path) -> list[str] | None:
    """Copy the user's sources of a network to where Python finds them; what is at the top there."""
    for name, file in model.sources().items():
        place = to.joinpath(*name.split("."))
        place = place / file.name if file.name == "__init__.py" else place.with_suffix(".py")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    return [str(path) for path in sorted(to.iterdir())] if to.is_dir() else None


def _copy_plugin(name: str, to: Path) -> None:
    file = source_file(plugins.module_of(Model.kind, name))
    if file is None or file.parent == plugins.HOMES[Model.kind]:
        return
    (to / Model.kind).mkdir(parents=True)
    for source in file.parent.glob("*.py"):
        shutil.copy(source, to / Model.kind)


def _register(store: Store, name: str, model: Any, run: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        store.client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    # In a folder, MLflow would look for models:/ in the store that is set globally.
    source = f"models:/{model.model_id}" if store.folder is None else model.artifact_location
    store.client.create_model_version(name, source, run, model_id=model.model_id)
