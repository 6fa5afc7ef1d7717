"""Where the clients' memories live: on the training device, in main memory, or in files mapped into it."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import part_suffix


class MemoryStore:
    """Keeps the clients' memories [N, d] on the training device, the host or disk (by default the system's temporary folder).

    A file of ``disk`` is unlinked as soon as it is mapped, so the system frees it however the process ends; it is sparse, so it
    takes space for the rows that were written only. The saved state contains the memories themselves, wherever they are kept.
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
        handle, name = tempfile.mkstemp(prefix="memory-", suffix=part_suffix(), dir=self.folder)
        try:
            os.truncate(handle, clients * size * dtype.itemsize)
            mapped = mmap.mmap(handle, clients * size * dtype.itemsize)
        finally:
            os.close(handle)
            Path(name).unlink()
        mapped.madvise(mmap.MADV_RANDOM)  # else the system would read megabytes around each row
        return torch.frombuffer(mapped, dtype=dtype).view(clients, size)

    def adopt(self, saved: dict[str, Tensor]) -> dict[str, Tensor]:
        """Saved memories, moved into this store."""
        if not self.on_disk:
            return {name: rows.to(self.device) for name, rows in saved.items()}
        return {name: self.rows(len(rows), rows.shape[1], rows.dtype).copy_(rows) for name, rows in saved.items()}

    def require(self, wanted: int, what: str) -> None:
        """Refuse ``wanted`` bytes of memories on disk if fewer are free."""
        if wanted > (free := shutil.disk_usage(self.folder).free):
            raise SettingsError(f"{what} needs {wanted / 1e9:.1f} GB on {self}, but {free / 1e9:.1f} GB are free")
