"""What the clients of a complete run are served from its end on, as kept in ``served.pt``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError, nearest
from fedtide.core.storage.files import replacing
from fedtide.training.models.base import Network
from fedtide.world.adapters.names import positions

Kind = Literal["own", "cluster", "global", "newcomer"]
"""Whose model one is: of one client alone, of several clients, the run's global one, or what a client gets of which nothing is
known: an owner that the run has never seen, or whose state was discarded when it left."""

BATCH = 256

_LISTED = 5
_WORDS: dict[Kind, str] = {
    "own": "by a model of their client's own",
    "cluster": "by a model that several clients share",
    "global": "by the global model",
    "newcomer": "by the model for newcomers",
}


@dataclass(frozen=True)
class ClientModels:
    """The distinct models of a run's clients, and which of them each owner of samples uses.

    Attributes:
        weights: parameters and floating buffers of the M models [M, ...], under the names of ``model.pt``.
        owners: names of the N clients, in the data. kinds: what the model of each is.
        of: int64 [N], the model of each, -1 for none: of a newcomer where no global model is trained.
        newcomer: the model of all other owners, or -1.
        column: that names the owner of a row; None if rows do not say it.
    """

    weights: dict[str, Tensor]
    owners: tuple[str, ...]
    kinds: tuple[Kind, ...]
    of: Tensor
    newcomer: int
    column: str | None

    def write(self, path: Path) -> None:
        with replacing(path, durable=True) as part, part.open("wb") as stream:
            torch.save(dict(vars(self)), stream)

    @classmethod
    def read(cls, path: Path) -> ClientModels | None:
        """The models in a file, None if there is none; a model is read from the disk when it is used."""
        return cls(**torch.load(path, weights_only=True, mmap=True)) if path.is_file() else None

    def of_client(self, name: str) -> str:
        """The owner of this name; a SettingsError if it is not a client of the run."""
        (number,) = positions([name], self.owners)
        if number < 0:
            known = nearest(f"client = {name!r} is not a client of the run", name, self.owners)
            rest = f"; rows of other owners, told by column {self.column!r}, get what the run gives newcomers"
            raise SettingsError(f"{known}{rest if self.column and self.newcomer >= 0 else ''}")
        return self.owners[number]

    def described(self, names: Sequence[str]) -> str:
        """How many rows of these owners are served which kind of model, in a line; newcomers are named."""
        kinds = [self.kinds[number] if number >= 0 else "newcomer" for number in positions(names, self.owners)]
        new = [name for name, kind in zip(names, kinds, strict=True) if kind == "newcomer"]
        counts = {words: kinds.count(kind) for kind, words in _WORDS.items()}
        parts = [f"{count:,} {words}" for words, count in counts.items() if count]
        return f"{len(names):,} rows: {', '.join(parts)}{f' ({listed(new)})' if new else ''}"

    def models_of(self, names: Sequence[str]) -> Ints:
        """The model that each of some owners is served; a SettingsError where there is none for some."""
        of = np.append(self.of.numpy(), self.newcomer)[positions(names, self.owners)]
        if without := [name for name, number in zip(names, of, strict=True) if number < 0]:
            raise SettingsError(
                f"no model for {listed(without)}: the run trains no global model, and none of its clients' models is theirs"
            )
        return np.asarray(of, dtype=np.int64)

    def outputs(self, network: Network, inputs: Tensor, of: Ints) -> Tensor:
        """Outputs [n, L] for inputs [n, ...], each of the model ``of`` [n]."""
        order = np.argsort(of, kind="stable")
        models, starts = np.unique(of[order], return_index=True)
        rows = [torch.from_numpy(some) for some in np.split(order, starts[1:])]
        each = [
            outputs_of(self.forward(network, model), torch.split(inputs[some], BATCH))
            for model, some in zip(models.tolist(), rows, strict=True)
        ]
        return torch.cat(each)[torch.from_numpy(np.argsort(order))]

    def forward(self, network: Network, model: int) -> Callable[[Tensor], Tensor]:
        """A model as a function of its inputs; ``network``, of its class, stays as it is."""
        names = {name: network.stored_name(name) for name in network.state_dict()}
        chosen = {name: self.weights[stored][model] for name, stored in names.items() if stored in self.weights}
        return lambda inputs: functional_call(network, chosen, (inputs,))


@torch.inference_mode()
def outputs_of(network: Callable[[Tensor], Tensor], batches: Iterable[Tensor]) -> Tensor:
    """Outputs of a network [n, outputs] for the inputs in batches."""
    return torch.cat([network(batch) for batch in batches])


def listed(names: Iterable[str]) -> str:
    """Some different names, and how many there are beside them."""
    different = sorted(set(names))
    more = f" and {len(different) - _LISTED:,} more" if len(different) > _LISTED else ""
    return f"{', '.join(different[:_LISTED])}{more}"
