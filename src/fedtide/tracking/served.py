"""What an MLflow model of a run consists of, and how it predicts: MLflow calls ``_load_pyfunc``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core import plugins
from fedtide.models.base import Model
from fedtide.settings.parse import parse
from fedtide.world.dataset import Dataset

WEIGHTS = "model.pt"
DESCRIPTION = "model.json"
PLUGINS = "plugins"

_BATCH = 256
_ABSENT = ("weights", "pretrained")
"""Settings of a model that say where its first weights come from; it has its last."""


class Served:
    """The final model of a run.

    Args:
        folder: with the weights, and a description of the network and of the samples.
    """

    def __init__(self, folder: Path) -> None:
        described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        _find_plugins(folder / PLUGINS)
        shape, constants = tuple(described["input_shape"]), described["constants"]
        constants = {name: constants[name] for name in constants if name not in ("clients", "unit")}
        constants |= {"mean": tuple(constants["mean"]), "std": tuple(constants["std"])}
        nothing, labels = torch.empty(0, *shape), torch.empty(0, dtype=torch.int64)
        samples: dict[str, Any] = {f"{split}_inputs": nothing for split in ("train", "test")}
        samples |= {f"{split}_labels": labels for split in ("train", "test")}
        self._data = Dataset(**constants, **samples, digest="")
        chosen = {name: value for name, value in described["model"].items() if name not in _ABSENT}
        plugin = plugins.load(Model, chosen["name"])
        model = plugin(parse(plugin.Settings, chosen))
        with torch.random.fork_rng(devices=[]):  # the caller's draws stay as they are
            network = model.build(shape, self._data.num_classes, self._data.vocabulary)
        weights = torch.load(folder / WEIGHTS, weights_only=True)
        self._dtype = next((value.dtype for value in weights.values() if value.is_floating_point()), torch.float32)
        network = network.to(self._dtype)
        network.load_state_dict({name: weights[network.stored_name(name)] for name in network.state_dict()})
        self._network = network.eval()

    @torch.inference_mode()
    def predict(self, model_input: NDArray[Any], params: dict[str, Any] | None = None) -> NDArray[np.floating[Any]]:
        """Probabilities of the classes [n, L] of samples [n, ...] as the dataset has them, e.g. images uint8."""
        inputs = torch.from_numpy(np.ascontiguousarray(model_input))
        prepared = (self._data.prepare(batch, self._dtype) for batch in torch.split(inputs, _BATCH))
        logits = torch.cat([self._network(batch) for batch in prepared])
        wide = torch.float64 if self._dtype == torch.float64 else torch.float32
        found: NDArray[np.floating[Any]] = logits.to(wide).softmax(1).numpy()
        return found


def _load_pyfunc(path: str) -> Served:
    return Served(Path(path))


def _find_plugins(folder: Path) -> None:
    """Let plug-ins be searched in a folder, too."""
    known = os.environ.get("FEDTIDE_PLUGINS", "")
    if folder.is_dir() and str(folder) not in known.split(os.pathsep):
        os.environ["FEDTIDE_PLUGINS"] = os.pathsep.join(filter(None, [known, str(folder)]))
