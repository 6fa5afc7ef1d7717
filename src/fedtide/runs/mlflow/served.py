"""What an MLflow model of a run consists of, and how it predicts: MLflow calls ``_load_pyfunc``."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.records.client_models import BATCH, ClientModels, outputs_of
from fedtide.records.final_model import FinalModel, final_network
from fedtide.records.run_directory import MODEL, SERVED
from fedtide.settings.params import parse
from fedtide.settings.scores import TaskName
from fedtide.world.adapters.encoding import Encoding
from fedtide.world.dataset import Dataset, restored

DESCRIPTION = "model.json"
PLUGINS = "plugins"

_PREDICTIONS: dict[TaskName, Callable[[Tensor], Tensor]] = {
    "classification": lambda logits: logits.softmax(1),
    "multilabel": torch.sigmoid,
    "regression": lambda outputs: outputs,
}


class Served:
    """The final model of a run, from its weights and a description of the network and of the samples, see ``save``.

    ``clients``: models of its clients, if they are served such.
    """

    def __init__(self, described: Mapping[str, Any], weights: Path, clients: ClientModels | None = None) -> None:
        shape, constants = tuple(described["input_shape"]), described["constants"]
        constants = {name: constants[name] for name in constants if name not in ("clients", "unit")}
        constants |= {"mean": tuple(constants["mean"]), "std": tuple(constants["std"])}
        outputs, self._clients = described["outputs"], clients
        nothing = {"inputs": torch.empty(0, *shape), "labels": torch.empty(0, outputs)}
        samples: Any = {f"{split}_{what}": part for split in ("train", "test") for what, part in nothing.items()}
        self._data = Dataset(**constants, **samples, digest="")
        self._network, self._dtype = final_network(described["model"], weights, shape, outputs, self._data.vocabulary)

    def predict(self, model_input: NDArray[Any], params: dict[str, Any] | None = None) -> NDArray[np.floating[Any]]:
        """Probabilities of the classes or labels [n, L], or in a regression predictions [n, T].

        Args:
            model_input: samples [n, ...] as the dataset has them, e.g. images uint8.
            params: ``client``, the name of the one whose model is used; without, it is the global model.

        Raises:
            SettingsError: there is no model for this client, or without one no global model.
        """
        client, forward = (params or {}).get("client"), self._network.__call__
        if self._clients is not None and client is None and self._clients.newcomer < 0:
            raise SettingsError("the run trains no global model; choose a client: params={'client': NAME}")
        if self._clients is not None and client is not None:
            forward = self._clients.forward(self._network, int(self._clients.models_of([client])[0]))
        inputs = torch.from_numpy(np.ascontiguousarray(model_input))
        logits = outputs_of(forward, (self._data.prepare(batch, self._dtype) for batch in torch.split(inputs, BATCH)))
        wide = torch.float64 if self._dtype == torch.float64 else torch.float32
        found = _PREDICTIONS[self._data.task](logits.to(wide))
        predictions: NDArray[np.floating[Any]] = restored(found, self._data.standardized).numpy()
        return predictions


def _load_pyfunc(path: str) -> Served | FinalModel:
    """The model in a folder: one that predicts rows of a table if the dataset had an encoding, else samples."""
    folder = Path(path)
    described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    weights, encoding = folder / MODEL, described["constants"].get("encoding")
    clients = ClientModels.read(folder / SERVED)
    with _plugins_found_in(folder / PLUGINS):
        if encoding is None:
            return Served(described, weights, clients)
        rows = parse(Encoding, encoding, f"{folder / DESCRIPTION}: encoding")
        return FinalModel(described["model"], weights, rows, clients)


@contextmanager
def _plugins_found_in(folder: Path) -> Iterator[None]:
    """Search plug-ins in a folder, too, inside the block."""
    known = os.environ.get("FEDTIDE_PLUGINS")
    if folder.is_dir():
        os.environ["FEDTIDE_PLUGINS"] = os.pathsep.join(filter(None, [known, str(folder)]))
    try:
        yield
    finally:
        os.environ.pop("FEDTIDE_PLUGINS", None)
        if known is not None:
            os.environ["FEDTIDE_PLUGINS"] = known
