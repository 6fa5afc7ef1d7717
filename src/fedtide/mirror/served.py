"""What an MLflow model of a run consists of, and how it predicts: MLflow calls ``_load_pyfunc``."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core import plugins
from fedtide.models.base import Model
from fedtide.settings.parse import parse
from fedtide.settings.scores import TaskName
from fedtide.world.dataset import Dataset

WEIGHTS = "model.pt"
DESCRIPTION = "model.json"
PLUGINS = "plugins"

_BATCH = 256
_PREDICTIONS: dict[TaskName, Callable[[Tensor], Tensor]] = {
    "classification": lambda logits: logits.softmax(1),
    "multilabel": torch.sigmoid,
    "regression": lambda outputs: outputs,
}
_ABSENT = ("weights", "pretrained")  # settings of a model's initial weights, which its final ones replace


class Served:
    """The final model of a run, from a folder with its weights and a description of the network and of the samples."""

    def __init__(self, folder: Path) -> None:
        described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        shape, constants = tuple(described["input_shape"]), described["constants"]
        constants = {name: constants[name] for name in constants if name not in ("clients", "unit")}
        constants |= {"mean": tuple(constants["mean"]), "std": tuple(constants["std"])}
        outputs = described["outputs"]
        nothing = {"inputs": torch.empty(0, *shape), "labels": torch.empty(0, outputs)}
        samples: Any = {f"{split}_{what}": part for split in ("train", "test") for what, part in nothing.items()}
        self._data = Dataset(**constants, **samples, digest="")
        chosen = {name: value for name, value in described["model"].items() if name not in _ABSENT}
        with _plugins_found_in(folder / PLUGINS):
            plugin = plugins.load(Model, chosen["name"])
            model = plugin(parse(plugin.Settings, chosen))
            with torch.random.fork_rng(devices=[]):  # the caller's draws stay as they are
                network = model.build(shape, outputs, self._data.vocabulary)
        weights = torch.load(folder / WEIGHTS, weights_only=True)
        self._dtype = next((value.dtype for value in weights.values() if value.is_floating_point()), torch.float32)
        network = network.to(self._dtype)
        network.load_state_dict({name: weights[network.stored_name(name)] for name in network.state_dict()})
        self._network = network.eval()

    @torch.inference_mode()
    def predict(self, model_input: NDArray[Any], params: dict[str, Any] | None = None) -> NDArray[np.floating[Any]]:
        """Probabilities of the classes or labels [n, L], or in a regression predictions [n, T].

        Args:
            model_input: samples [n, ...] as the dataset has them, e.g. images uint8. params: not used.
        """
        inputs = torch.from_numpy(np.ascontiguousarray(model_input))
        prepared = (self._data.prepare(batch, self._dtype) for batch in torch.split(inputs, _BATCH))
        logits = torch.cat([self._network(batch) for batch in prepared])
        wide = torch.float64 if self._dtype == torch.float64 else torch.float32
        found: NDArray[np.floating[Any]] = _PREDICTIONS[self._data.task](logits.to(wide)).numpy()
        return found


def _load_pyfunc(path: str) -> Served:
    return Served(Path(path))


@contextmanager
def _plugins_found_in(folder: Path) -> Iterator[None]:
    """Search plug-ins in a folder, too, inside the block."""
    package = importlib.import_module(f"fedtide.{Model.kind}")
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
