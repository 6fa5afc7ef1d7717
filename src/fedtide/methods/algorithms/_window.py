"""Running sums over the last rows of a series, kept in an algorithm's ``extra``."""

from __future__ import annotations

import torch
from torch import Tensor


def empty(*shape: int) -> dict[str, Tensor]:
    """Float64 ``sums`` [*shape], the rows ``kept`` to be subtracted again [n, *shape], and how many ``triples`` are in them."""
    return {
        "sums": torch.zeros(shape, dtype=torch.float64),
        "kept": torch.zeros(0, *shape),
        "triples": torch.zeros((), dtype=torch.int64),
    }


def push(extra: dict[str, Tensor], new: Tensor, window: int | None) -> None:
    """Add rows [C, *shape] and drop the oldest beyond the ``window``; without one nothing has to be kept."""
    kept, count = extra["kept"].to(new), int(extra["triples"]) + len(new)
    sums = extra["sums"].to(new.device) + new.sum(0, dtype=torch.float64)
    if window is not None:
        kept = torch.cat([kept, new])
        sums -= kept[:-window].sum(0, dtype=torch.float64)
        kept, count = kept[-window:].clone(), min(count, window)
    extra |= {"sums": sums, "kept": kept, "triples": torch.tensor(count)}
