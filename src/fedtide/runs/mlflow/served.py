"""What an MLflow model of a run consists of, and how it predicts: MLflow calls ``_load_pyfunc``."""

import importlib
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

from fedtide.core import plugins
from fedtide.records.final_model import BATCH, FinalModel, final_network, outputs_of
from fedtide.records.run_directory import MODEL
from fedtide.settings.params import parse
from fedtide.settings.scores import TaskName
from fedtide.training.models.base import Model
from fedtide.world.adapters.encoding import Encoding
from fedtide.world.dataset import Dataset

DESCRIPTION = "model.json"
PLUGINS = "plugins"

_PREDICTIONS: dict[TaskName, Callable[[Tensor], Tensor]] = {
    "classification": lambda logits: logits.softmax(1),
    "multilabel": torch.sigmoid,
    "regression": lambda outputs: outputs,
}


class Served:
    """The final model of a run, from its weights and a description of the network and of the samples, see ``save``."""

    def __init__(self, described: Mapping[str, Any], weights: Path) -> None:
        shape, constants = tuple(described["input_shape"]), described["constants"]
        constants = {name: constants[name] for name in constants if name not in ("clients", "unit")}
        constants |= {"mean": tuple(constants["mean"]), "std": tuple(constants["std"])}
        outputs = described["outputs"]
        nothing = {"inputs": torch.empty(0, *shape), "labels": torch.empty(0, outputs)}
        samples: Any = {f"{split}_{what}": part for split in ("train", "test") for what, part in nothing.items()}
        self._data = Dataset(**constants, **samples, digest="")
        self._network, self._dtype = final_network(described["model"], weights, shape, outputs, self._data.vocabulary)

    def predict(self, model_input: NDArray[Any], params: dict[str, Any] | None = None) -> NDArray[np.floating[Any]]:
        """Probabilities of the classes or labels [n, L], or in a regression predictions [n, T].

        Args:
            model_input: samples [n, ...] as the dataset has them, e.g. images uint8. params: not used.
        """
        inputs = torch.from_numpy(np.ascontiguousarray(model_input))
        logits = outputs_of(
            self._network, (self._data.prepare(batch, self._dtype) for batch in torch.split(inputs, BATCH))
        )
        wide = torch.float64 if self._dtype == torch.float64 else torch.float32
        found: NDArray[np.floating[Any]] = _PREDICTIONS[self._data.task](logits.to(wide)).numpy()
        return found


def _load_pyfunc(path: str) -> Served | FinalModel:
    return load(Path(path))


def load(folder: Path) -> Served | FinalModel:
    """The model in a folder: one that predicts rows of a table if the dataset had an encoding, else samples."""
    described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    weights, encoding = folder / MODEL, described["constants"].get("encoding")
    with _plugins_found_in(folder / PLUGINS):
        if encoding is None:
            return Served(described, weights)
        return FinalModel(described["model"], weights, parse(Encoding, encoding, f"{folder / DESCRIPTION}: encoding"))


@contextmanager
def _plugins_found_in(folder: Path) -> Iterator[None]:
    """Search plug-ins in a folder, too, inside the block."""
    package = importlib.import_module(plugins.package_of(Model.kind))
    searched = list(package.__path__)
    known = os.environ.get("FEDTIDE_PLUGINS")
    if folder.is_dir():
        os.environ["FEDTIDE_PLUGINS"] = os.pathsep.join(filter(None, [known, str(folder)]))
    try:
        yield
    finally:
        package.__path__[:] = searched
        os.environ.pop("FEDTIDE_PLUGINS", None)
        if known is not None:
            os.environ["FEDTIDE_PLUGINS"] = known
