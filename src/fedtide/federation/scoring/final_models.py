"""The models that a complete run keeps of its clients: what each is served from then on."""

from collections import Counter
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from fedtide.federation.assembly.hardware import MemoryStore
from fedtide.federation.scoring.client_samples import owners
from fedtide.federation.scoring.evaluator import ModelValues
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.types import Parts, RunState
from fedtide.methods.algorithms.base import overrides
from fedtide.records.client_models import ClientModels, Kind
from fedtide.world.clients import ClientNames


def serves_others(parts: Parts) -> bool:
    """Whether clients are served other models than the global one."""
    return overrides(parts.algorithm, "served")


def file_size(parts: Parts) -> int:
    """Bytes of the models that are kept of clients, at most: as if each had one of its own."""
    if not (serves_others(parts) and owners(parts.evaluator, "train") is not None and parts.settings.keep == "served"):
        return 0
    size = parts.layout.size + parts.layout.buffer_size
    return (parts.timeline.num_clients + 1) * size * parts.hardware.dtype.itemsize


@torch.no_grad()
def client_models(parts: Parts, state: RunState, column: str | None) -> ClientModels:
    """What each client is served after the last round; ``column`` names the owner of a table's row."""
    served, timeline, trains_global = ServedModels(parts), parts.timeline, "global" in parts.algorithm.models
    numbers = timeline.origin_of_client
    rows = _Rows(parts, len(numbers) + 1)
    newcomer = rows.add(served.newcomer(state))[0]
    of = np.zeros(len(numbers), dtype=np.int64)
    for models, used, places in served.of_owners(state, timeline.rounds - 1, numbers):
        chosen, which = np.unique(used, return_inverse=True)
        added = rows.add((models[0][chosen], models[1][chosen]))
        of[np.concatenate(places)] = np.array(added)[which]
    whole = rows.number((state.w[None], state.b[None]))
    shared = Counter(of.tolist())

    def kind(client: int, model: int) -> Kind:
        if model == newcomer and not state.seen[client]:
            return "newcomer"
        if model == whole:
            return "global"
        return "own" if shared[model] == 1 else "cluster"

    kinds = tuple(kind(client, model) for client, model in enumerate(of.tolist()))
    if not trains_global:
        of = np.where(np.array(kinds) == "newcomer", -1, of)
    return ClientModels(
        weights=parts.stacked(*rows.models()),
        owners=ClientNames.of(timeline, parts.data).own,
        kinds=kinds,
        of=torch.from_numpy(of),
        newcomer=newcomer if trains_global else -1,
        column=column,
    )


class _Rows:
    """Different models [M, d + q], at most ``count``, where the run keeps its clients' state, but never on a GPU."""

    def __init__(self, parts: Parts, count: int) -> None:
        store = MemoryStore("disk" if parts.memory.on_disk else "host", torch.device("cpu"), parts.memory.folder)
        self._size, width = parts.layout.size, parts.layout.size + parts.layout.buffer_size
        self._rows = store.rows(count, width, parts.hardware.dtype)
        self._numbers: dict[bytes, int] = {}

    def add(self, models: ModelValues) -> list[int]:
        """Numbers of models [m, d], with their buffers [m, q]; those that are new are kept."""
        found = []
        for row in self._joined(models):
            number = self._numbers.setdefault(_hash(row), len(self._numbers))
            self._rows[number] = row
            found.append(number)
        return found

    def number(self, model: ModelValues) -> int | None:
        """The number of a model [1, d]; None if it is not among them."""
        return self._numbers.get(_hash(self._joined(model)[0]))

    def models(self) -> ModelValues:
        """The models [M, d] and their buffers [M, q]: together they take no more bytes in a file than they have."""
        kept = torch.from_numpy(self._rows.numpy()[: len(self._numbers)])
        return kept[:, : self._size], kept[:, self._size :]

    @staticmethod
    def _joined(models: ModelValues) -> Tensor:
        return torch.cat(models, 1).cpu()


def _hash(row: Tensor) -> bytes:
    return blake2b(row.numpy().tobytes(), digest_size=16).digest()
