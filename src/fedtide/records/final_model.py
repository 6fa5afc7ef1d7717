"""The final model of a run: its network, and predictions for rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.records.client_models import BATCH, ClientModels, outputs_of
from fedtide.records.run_directory import ENCODING, MODEL, SERVED, RunDirectory, read_json
from fedtide.records.summary import Summary, predicts
from fedtide.settings.params import parse
from fedtide.training.models.base import Model, Network
from fedtide.world.adapters.encoding import Encoding, Place, row

if TYPE_CHECKING:
    import pandas as pd

_ABSENT = ("weights", "pretrained")  # settings of a model's initial weights, which its final ones replace


class FinalModel:
    """The final model of a run on a table, or with ``clients`` the models that it serves.

    Args:
        chosen: settings of the model. weights: file of its parameters and buffers.
        clients: models of the run's clients. client: the one whose model all rows get; None: each row gets its owner's.

    Attributes:
        encoding: how rows become inputs, and what the outputs are.
        note: why it is the global model although clients were served others; empty where it is not.
    """

    def __init__(
        self,
        chosen: Mapping[str, Any],
        weights: Path,
        encoding: Encoding,
        clients: ClientModels | None = None,
        client: str | None = None,
        note: str = "",
    ) -> None:
        self.encoding, self.note, self._clients = encoding, note, clients
        self._client = None if client is None or clients is None else clients.of_client(client)
        self._network, self._dtype = final_network(
            chosen, weights, (len(encoding.features),), len(encoding.outputs), vocabulary=0
        )

    @property
    def column(self) -> str | None:
        """Column that says whose model a row gets; None where all rows get the same."""
        return None if self._clients is None or self._client is not None else self._clients.column

    def predict(self, rows: pd.DataFrame, place: Place = row) -> pd.DataFrame:
        """Predictions for rows of a table, with their index: :meth:`Encoding.predictions`.

        Args:
            rows: as for :meth:`Encoding.apply`, which refuses bad ones; with the :attr:`column` of their owners. place: where
                the row of a position is found, for errors.

        Raises:
            SettingsError: also if there is no column of owners, one is missing, or there is no model for some.
        """
        inputs = self.encoding.apply(rows, place).to(self._dtype)
        if self._clients is None:
            outputs = outputs_of(self._network, torch.split(inputs, BATCH))
        else:
            outputs = self._clients.outputs(self._network, inputs, self._clients.models_of(self.owners(rows, place)))
        return self.encoding.predictions(outputs).set_index(rows.index)

    def owners(self, rows: pd.DataFrame, place: Place = row) -> list[str]:
        """Name of the client whose model each row gets, where clients have models of their own."""
        from fedtide.world.adapters.columns import Column, clients

        if self._client is not None:
            return [self._client] * len(rows)
        if (column := self.column) is None:
            raise SettingsError("the run's data do not say which column names the client of a row; choose one client")
        if column not in rows.columns:
            problem = f"no column {column!r}, which says whose model a row gets (data.client)"
            raise SettingsError(nearest(problem, column, map(str, rows.columns)))
        numbers, names = clients(Column(rows[column], column, place))
        return [names[number] for number in numbers]

    def described(self, rows: pd.DataFrame, place: Place = row) -> str:
        """How many rows get which kind of model, in a line: :data:`Kind`; empty where clients have none of their own."""
        if self._clients is None:
            return f"{len(rows):,} rows: all by the global model, since {self.note}" if self.note else ""
        return self._clients.described(self.owners(rows, place))


def load_model(run: str | Path, client: str | None = None) -> FinalModel:
    """The final model of a run on a table (dataset ``table``, ``flights``, or one of yours with an ``encoding``).

    Where clients are served models of their own, these are used: each row gets that of its owner, which the column
    ``data.client`` names, or with ``client`` all rows get that client's. An owner that the run has never seen gets what the
    algorithm gives newcomers, usually the global model.

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
        client: name of a client in the data; None: each row is served by its owner.

    Returns:
        A model whose ``predict`` takes a frame with the columns that were features, in any order, and without ``client`` that
        of the owners, if clients have models of their own; other columns are ignored. Values
        may be missing and categories unknown, as in training. It returns a frame: of a classification ``prediction``, the name
        of the class, and ``probability_<class>`` of every class; of a regression ``prediction`` in the target's unit, or
        ``prediction_<target>`` of several targets; of a multilabel task ``prediction_<label>``, 0 or 1, and
        ``probability_<label>`` of every label.

    Raises:
        SettingsError: there is no such run, it has no final model or no encoding, ``client`` is none of it, or a file is
            damaged; or there is nothing to predict with: the run trains no global model, and has kept none of its clients.
    """
    folder = Path(run)
    settings, facts = (read_json(folder / name) for name in ("settings.json", "manifest.json"))
    if settings is None or facts is None:
        raise SettingsError(f"{folder}: not a run directory")
    directory = RunDirectory(folder)
    directory.verify("settings.json", "manifest.json", ENCODING, SERVED, MODEL)
    if (stored := read_json(folder / ENCODING)) is None:
        raise SettingsError(f"{folder}: no {ENCODING}, since its data ({facts['dataset']}) are not rows of a table")
    if not (folder / MODEL).is_file():
        state = (directory.summary() or {"state": "unfinished"})["state"]
        raise SettingsError(f"{folder}: no final model, the run is {state}")
    clients, note = clients_of(directory)
    if note and client is not None:
        raise SettingsError(f"{folder}: client = {client!r}: {note}")
    encoding = parse(Encoding, stored, f"{folder / ENCODING} is damaged")
    return FinalModel(settings["model"], folder / MODEL, encoding, clients, client, note)


def clients_of(directory: RunDirectory) -> tuple[ClientModels | None, str]:
    """What a complete run has kept of its clients' models, and a line on why nothing where they had some.

    Raises:
        SettingsError: there is no model to predict with, since no global model was trained either.
    """
    summary: Summary = directory.summary() or {}
    if (clients := ClientModels.read(directory.path / SERVED)) is not None or summary.get("served") is None:
        return clients, ""
    why = "keep: global" if summary["served"] == "discarded" else "its clients do not own the data's samples"
    note = f"the run has kept no models of its clients ({why})"
    if not predicts(summary):
        algorithm = summary["algorithm"]
        raise SettingsError(
            f"{directory.path}: nothing to predict with: {note}, and algorithm {algorithm} has no global one"
        )
    return None, note


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
