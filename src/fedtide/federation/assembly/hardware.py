"""Where a run computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from fedtide.federation.assembly.ranks import Alone, Group


@dataclass(frozen=True)
class Hardware:
    """Where and in which precision a run computes: ``dtype`` is of parameters, ``autocast`` of mixed precision, or None.

    ``group``: processes that share the work. ``scratch``: folder of memories kept on disk.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    group: Group = field(default_factory=Alone)
    scratch: Path | None = None

    @property
    def leads(self) -> bool:
        """Whether this process evaluates and records."""
        return self.group.rank == 0
