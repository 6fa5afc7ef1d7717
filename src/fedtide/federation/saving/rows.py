"""The clients' memories in saved states: logs of rows that only grow, so that a save writes what has changed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedtide.records.files.marks import GrowingFiles, Mark

Piece = tuple[Tensor, dict[str, Tensor]]  # ids of some clients, int64 [m], and their rows [m, size] of each memory
_NUMBERS = 1 << 22  # numbers in memory at a time


def live_rows(memory: dict[str, Tensor], clients: Tensor) -> Iterator[Piece]:
    """Rows of these clients, int64 [m], a few at a time; ``memory``: [N, size] by name."""
    width = sum(rows.shape[1] for rows in memory.values())
    for ids in torch.split(clients.cpu(), max(1, _NUMBERS // max(1, width))):
        yield ids, {name: rows[ids.to(rows.device)].cpu() for name, rows in memory.items()}


@dataclass(frozen=True)
class StoredRows:
    """The beginning of a log, ``size`` bytes; rows that occur again later in it replace those before.

    ``forms``: of each memory [N, size], tensors without content.
    """

    path: Path
    size: int
    forms: dict[str, Tensor]

    def pieces(self) -> Iterator[Piece]:
        """What was appended, in order."""
        with self.path.open("rb") as file:
            while file.tell() < self.size:
                yield _read(file), {name: _read(file) for name in self.forms}

    def write_into(self, memory: dict[str, Tensor]) -> Tensor:
        """Copy all rows into memories [N, size] of these forms; ids of the clients that have any, int64."""
        clients = [torch.zeros(0, dtype=torch.int64)]
        for ids, values in self.pieces():
            clients.append(ids)
            for name, rows in values.items():
                memory[name][ids.to(memory[name].device)] = rows.to(memory[name].device)
        return torch.cat(clients)


class RowLog:
    """A new log that one process writes, never changed but at its end; ``round``: rounds done at its last mark."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.round, self.size = name, 0, 0
        self._files = GrowingFiles(folder)
        self._files.begin(name)  # there may be one of a process that was killed before a state named it

    def append(self, pieces: Iterable[Piece]) -> None:
        for ids, values in pieces:
            stream = io.BytesIO()
            for tensor in (ids, *values.values()):
                np.lib.format.write_array(stream, tensor.numpy(), allow_pickle=False)
            self._files.append(self.name, stream.getvalue())
            self.size += stream.tell()

    def mark(self, round_: int) -> dict[str, Mark]:
        """The mark of the log after a round, once it is on the disk; none of an empty one."""
        self.round = round_
        return self._files.marks()


def row_bytes(memory: dict[str, Tensor]) -> int:
    """Bytes of a client's rows."""
    return 8 + sum(rows.shape[1] * rows.element_size() for rows in memory.values())


def _read(file: io.BufferedReader) -> Tensor:
    return torch.from_numpy(np.lib.format.read_array(file, allow_pickle=False))
