"""The final model of a run: its network, and predictions for rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, shortened
from fedtide.records.run_directory import ENCODING, MODEL, RunDirectory, read_json
from fedtide.settings.params import parse
from fedtide.training.models.base import Model, Network
from fedtide.world.adapters.encoding import Encoding, Place, row

if TYPE_CHECKING:
    import pandas as pd

BATCH = 256
_ABSENT = ("weights", "pretrained")  # settings of a model's initial weights, which its final ones replace


class FinalModel:
    """The final model of a run on a table.

    Args:
        chosen: settings of the model. weights: file of its parameters and buffers.

    Attributes:
        encoding: how rows become inputs, and what the outputs are.
    """

    def __init__(self, chosen: Mapping[str, Any], weights: Path, encoding: Encoding) -> None:
        self.encoding = encoding
        self._network, self._dtype = final_network(
            chosen, weights, (len(encoding.features),), len(encoding.outputs), vocabulary=0
        )

    def predict(self, rows: pd.DataFrame, place: Place = row) -> pd.DataFrame:
        """Predictions for rows of a table, with their index: :meth:`Encoding.predictions`.

        Args:
            rows: as for :meth:`Encoding.apply`, which refuses bad ones. place: where the row of a position is found, for
                errors.
        """
        inputs = self.encoding.apply(rows, place).to(self._dtype)
        return self.encoding.predictions(outputs_of(self._network, torch.split(inputs, BATCH))).set_index(rows.index)


def load_model(run: str | Path) -> FinalModel:
    """The final model of a run on a table (dataset ``table``, ``flights``, or one of yours with an ``encoding``).

    >>> import fedtide, pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0] * 5, "label": ["no", "no", "yes", "yes"] * 5})
    >>> frame.to_csv("sizes.csv", index=False)
    >>> data = {"name": "table", "file": "sizes.csv"}
    >>> static = {"name": "static", "num_clients": 2, "rounds": 20}
    >>> params = fedtide.Params({"data": data, "model": "softmax_regression", "scenario": static, "partition": "iid"})
    >>> records = fedtide.run(params, name="sizes")
    >>> fedtide.load_model("runs/sizes").predict(pd.DataFrame({"size": [0.5, 4.5]})).prediction.tolist()
    ['no', 'yes']

    Args:
        run: its directory, which is all that is needed.

    Returns:
        A model whose ``predict`` takes a frame with the columns that were features, in any order; others are ignored. Values
        may be missing and categories unknown, as in training. It returns a frame: of a classification ``prediction``, the name
        of the class, and ``probability_<class>`` of every class; of a regression ``prediction`` in the target's unit, or
        ``prediction_<target>`` of several targets; of a multilabel task ``prediction_<label>``, 0 or 1, and
        ``probability_<label>`` of every label.

    Raises:
        SettingsError: there is no such run, it has no final model or no encoding, or a file is damaged.
    """
    folder = Path(run)
    settings, facts = (read_json(folder / name) for name in ("settings.json", "manifest.json"))
    if settings is None or facts is None:
        raise SettingsError(f"{folder}: not a run directory")
    directory = RunDirectory(folder)
    directory.verify("settings.json", "manifest.json", ENCODING, MODEL)
    if (stored := read_json(folder / ENCODING)) is None:
        raise SettingsError(f"{folder}: no {ENCODING}, since its data ({facts['dataset']}) are not rows of a table")
    if not (folder / MODEL).is_file():
        state = (directory.summary() or {"state": "unfinished"})["state"]
        raise SettingsError(f"{folder}: no final model, the run is {state}")
    return FinalModel(settings["model"], folder / MODEL, parse(Encoding, stored, f"{folder / ENCODING} is damaged"))


def final_network(
    chosen: Mapping[str, Any], weights: Path, shape: tuple[int, ...], outputs: int, vocabulary: int
) -> tuple[Network, torch.dtype]:
    """The network of a run with its final weights, in evaluation mode, and the type of its inputs.

    Args:
        chosen: settings of the model. weights: file of its parameters and buffers. shape: of one sample.
    """
    plugin = plugins.load(Model, chosen["name"])
    model = plugin(parse(plugin.Settings, {name: value for name, value in chosen.items() if name not in _ABSENT}))
    with torch.random.fork_rng(devices=[]):  # the caller's draws stay as they are
        network = model.build(shape, outputs, vocabulary)
    stored = torch.load(weights, weights_only=True)
    dtype = next((value.dtype for value in stored.values() if value.is_floating_point()), torch.float32)
    network = network.to(dtype)
    try:
        network.load_state_dict({name: stored[network.stored_name(name)] for name in network.state_dict()})
    except (KeyError, RuntimeError) as error:
        raise SettingsError(
            f"{weights}: does not match the current code of model {chosen['name']}: {shortened(str(error))}"
        ) from None
    return network.eval(), dtype


@torch.inference_mode()
def outputs_of(network: Network, batches: Iterable[Tensor]) -> Tensor:
    """Outputs of a network [n, outputs] for the inputs in batches."""
    return torch.cat([network(batch) for batch in batches])
