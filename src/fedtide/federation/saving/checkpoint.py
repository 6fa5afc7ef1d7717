"""Saved states: two generations, each bound to its run and to the records that it continues.

A state is a sealed file; the clients' memories are in a log beside it (:class:`RowLog`), of which the
state names a beginning and its hash. Each generation has a log of its own, so that neither depends on a file of the other: a
save appends what has changed since the state before the last one to the log of that state, which it replaces. A process
appends to its own logs only, and begins a new one when the old one has become twice as long as what it holds.

Whenever a process is killed or the power fails, two states, or the first one, are complete: a log is on the disk before the
state that names it, and what is dropped is dropped after that.
"""

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.core.storage.sealed import read_content, sealing
from fedtide.records.files.marks import GrowingFiles, Mark, Marks
from fedtide.records.files.states import generations, log_name, read_state_header, state_name, sweep

__all__ = ["Generations", "Saved", "generations", "load", "sweep"]

_GROWTH = 2  # length of a log that a new one replaces, as a multiple of the new one's


Piece = tuple[Tensor, dict[str, Tensor]]  # ids of some clients, int64 [m], and their rows [m, size] of each memory
_NUMBERS = 1 << 22  # numbers in memory at a time


def _live_rows(memory: dict[str, Tensor], clients: Tensor) -> Iterator[Piece]:
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


def _read(file: io.BufferedReader) -> Tensor:
    return torch.from_numpy(np.lib.format.read_array(file, allow_pickle=False))


@dataclass(frozen=True)
class Saved:
    """A state on disk.

    Attributes:
        owner: key of the run that it belongs to. round: number of rounds done.
        records: marks of the record files that hold these rounds.
        values: containers of tensors and numbers; ``memory`` as it is kept, or :class:`StoredRows` if it has been loaded.
    """

    owner: str
    round: int
    records: Marks
    values: dict[str, Any]


class Generations:
    """The saved states that one process writes into a folder, of which the last ``keep`` stay."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self._folder, self._keep = folder, keep
        self._logs: list[RowLog] = []  # of the last states, oldest first

    def save(self, saved: Saved) -> None:
        """Write ``state-<round>.pt`` and drop all but the newest generations."""
        folder, values = self._folder, dict(saved.values)
        folder.mkdir(parents=True, exist_ok=True)
        memory, written = values.pop("memory", {}), values.pop("written", None)
        header = {"owner": saved.owner, "round": saved.round, "records": dict(saved.records), "rows": {}}
        if memory:
            header["rows"] = self._write_rows(memory, written, saved.round)
        forms = memory.forms if isinstance(memory, StoredRows) else memory
        values["memory"] = {name: rows.new_empty(0, rows.shape[1], device="cpu") for name, rows in forms.items()}
        with sealing(folder / state_name(saved.round), header) as stream:
            torch.save(values, stream)  # streamed in pieces
        for old in generations(folder)[self._keep :]:
            old.unlink(missing_ok=True)
        sweep(folder)

    def _write_rows(self, memory: dict[str, Tensor] | StoredRows, written: Tensor, round_: int) -> Marks:
        """Bring a log up to date; its mark."""
        if isinstance(memory, StoredRows):
            log = RowLog(self._folder, log_name(round_))
            log.append(memory.pieces())
        else:
            log = self._log_for(memory, written, round_)
            log.append(_live_rows(memory, (written > log.round).nonzero()[:, 0]))
        self._logs = [*self._logs, log][-self._keep :]
        return log.mark(round_)

    def _log_for(self, memory: dict[str, Tensor], written: Tensor, round_: int) -> RowLog:
        """The log of the state that is replaced, if there is one and it does not become too long; else a new one."""
        if len(self._logs) == self._keep:
            log, one = (
                self._logs[0],
                8 + sum(rows.shape[1] * rows.element_size() for rows in memory.values()),
            )  # bytes of a client
            if log.size + one * int((written > log.round).sum()) <= _GROWTH * one * int((written > 0).sum()):
                return log
        return RowLog(self._folder, log_name(round_))


def load(
    folder: Path, owner: str, lost: Callable[[Marks], Sequence[str]] = lambda _: ()
) -> tuple[Saved | None, dict[Path, str]]:
    """The newest state of a run that can be continued, and what is wrong with each newer one.

    ``None`` if nothing was ever saved. ``lost``: what the record files lack of what a state continues.

    Raises:
        SettingsError: a state belongs to another run or was not saved by fedtide; or states exist, but none can be
            continued: a run never silently starts over.
    """
    skipped: dict[Path, str] = {}
    for path in generations(folder):
        header = read_state_header(path, owner)
        if header is None:
            skipped[path] = f"{path.name} is damaged"
        elif problems := lost(header["records"]):
            skipped[path] = f"{path.name} does not match the record files: {', '.join(problems)}"
        else:
            return Saved(owner, header["round"], header["records"], _values(path, header["rows"])), skipped
    if skipped:
        raise SettingsError(
            f"{folder}: no checkpoint can be resumed ({'; '.join(skipped.values())}); restore the files, or delete "
            "the run directory to start the run again"
        )
    return None, {}


def _values(path: Path, rows: Marks) -> dict[str, Any]:
    """Only containers, tensors and numbers: anything else could run code."""
    try:
        values: dict[str, Any] = torch.load(io.BytesIO(read_content(path)), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, KeyError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SettingsError(f"{path}: not a fedtide checkpoint; delete it ({reason})") from None
    for name, mark in rows.items():
        clients = len(values["counts"])
        forms = {key: form.new_empty(clients, form.shape[1], device="meta") for key, form in values["memory"].items()}
        values["memory"] = StoredRows(path.parent / name, mark["bytes"], forms)
    return values
