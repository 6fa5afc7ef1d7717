"""Where a run computes: device and precision, the processes that share the work, and where client state is kept."""

import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.training.engine.executors.executor import Advance, Executor
from fedtide.training.engine.local import Cohort


class Group:
    """The processes of a run, from the inside of one of them: those of ``torch.distributed``, or a single one."""

    def __init__(self) -> None:
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.rank, self.size = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if several else (0, 1)

    def sum_in_place(self, tensor: Tensor) -> None:
        """Add up a tensor over several processes."""
        torch.distributed.all_reduce(tensor)

    def in_turn(self, total: Tensor, add: Callable[[Tensor], None]) -> None:
        """Let every one of several processes ``add`` to ``total``, the first one first; all have the result in the end."""
        if self.rank > 0:
            torch.distributed.recv(total, self.rank - 1)
        add(total)
        if self.rank < self.size - 1:
            torch.distributed.send(total, self.rank + 1)
        torch.distributed.broadcast(total, self.size - 1)


@dataclass(frozen=True)
class Hardware:
    """Where and in which precision a run computes: ``dtype`` is of parameters, ``autocast`` of mixed precision, or None.

    ``group``: processes that share the work. ``scratch``: folder of client state kept on disk.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    group: Group = field(default_factory=Group)
    scratch: Path | None = None

    @property
    def leads(self) -> bool:
        """Whether this process evaluates and records."""
        return self.group.rank == 0


@dataclass(frozen=True)
class Share:
    """The clients of a round that this process trains, a block of rows that is then combined with the others'.

    Attributes:
        group: the processes. rows: of the cohort that this process trains. clients: rows of the cohort.
        whole: whether every process gets all rows after local training. Otherwise it has only its own, the others are NaN, and
            sums over all rows pass through the processes in turn; a model instead of a cohort is sent.
    """

    group: Group
    rows: slice
    whole: bool
    clients: int

    def begin(self, executor: Executor, cohort: Cohort) -> Advance:
        """Training of this process's rows; they are then combined with the others'."""
        if self.group.size == 1:
            return executor.begin(cohort)
        own = range(len(cohort.plan.steps))[self.rows]
        steps = [count if row in own else 0 for row, count in enumerate(cohort.plan.steps)]
        advance_own = executor.begin(replace(cohort, plan=replace(cohort.plan, steps=steps)))
        rows = [cohort.W, cohort.buffers, *cohort.memories, *cohort.moments.values()]

        def advance(last: int) -> None:
            advance_own(last)
            self.combine(cohort.losses)
            for tensor in rows:
                if self.whole:
                    self.combine(tensor)
                else:
                    tensor[: own.start] = tensor[own.stop :] = math.nan

        return advance

    def combine(self, rows: Tensor) -> None:
        """Exchange rows [C, ...] that every process has computed for its own part: all get all."""
        if self.group.size > 1 and rows.numel():
            rows[: self.rows.start] = 0
            rows[self.rows.stop :] = 0
            self.group.sum_in_place(rows)

    def spread(self, column: Tensor) -> Tensor:
        """A column [C, 1] of which this process has its own part, or all of it."""
        if self.whole:
            return column
        full = column.new_zeros(self.clients, 1)
        full[self.rows] = column
        self.combine(full)
        return full

    def gathered(self, column: Tensor) -> Tensor:
        """A column [C, 1] of all participants, from one that is right in the rows of this process."""
        return column if self.whole else self.spread(column[self.rows])

    def total(self, total: Tensor, add: Callable[[Tensor, slice], None]) -> Tensor:
        """A sum over all rows in their order, bitwise the same for any number of processes.

        ``add`` adds the terms of some rows to ``total``, zeros at first.
        """
        if self.whole:
            add(total, slice(None))
        else:
            self.group.in_turn(total, lambda part: add(part, self.rows))
        return total


def share_of(group: Group, clients: int, whole: bool) -> Share:
    """The share of a process of ``clients`` rows; ``whole`` as in :class:`Share`, always so for a single process."""
    rows = slice(group.rank * clients // group.size, (group.rank + 1) * clients // group.size)
    return Share(group, rows, whole or group.size == 1, clients)


class MemoryStore:
    """Keeps client state [N, d] on the training device, the host or disk (by default the system's temporary folder).

    A file of ``disk`` has no name, so the system frees it however the process ends; it is sparse, so it
    takes space for the rows that were written only. A checkpoint contains the rows themselves, wherever they are kept.
    """

    def __init__(self, kind: Literal["device", "host", "disk"], device: torch.device, folder: Path | None) -> None:
        self.on_disk = kind == "disk"
        self.device = device if kind == "device" else torch.device("cpu")
        self.folder = folder or Path(tempfile.gettempdir())

    def __str__(self) -> str:
        return f"disk ({self.folder})" if self.on_disk else str(self.device)

    def rows(self, clients: int, size: int, dtype: torch.dtype) -> Tensor:
        if not self.on_disk:
            return torch.zeros(clients, size, dtype=dtype, device=self.device)
        with tempfile.TemporaryFile(dir=self.folder) as file:
            os.truncate(file.fileno(), clients * size * dtype.itemsize)
            mapped = mmap.mmap(file.fileno(), clients * size * dtype.itemsize)
        mapped.madvise(mmap.MADV_RANDOM)  # else the system would read megabytes around each row
        return torch.frombuffer(mapped, dtype=dtype).view(clients, size)

    def adopt(self, saved: dict[str, Tensor]) -> dict[str, Tensor]:
        """Saved rows, moved into this store."""
        if not self.on_disk:
            return {name: rows.to(self.device) for name, rows in saved.items()}
        return {name: self.rows(len(rows), rows.shape[1], rows.dtype).copy_(rows) for name, rows in saved.items()}

    def require(self, wanted: int, what: str) -> None:
        """Refuse ``wanted`` bytes of client state on disk if fewer are free."""
        if wanted > (free := shutil.disk_usage(self.folder).free):
            raise SettingsError(f"{what} needs {wanted / 1e9:.1f} GB on {self}, but {free / 1e9:.1f} GB are free")
