"""A clip that gives clients time: their first updates may be as long as the longest of the others."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.uplink.base import Sending
from fedtide.methods.uplink.clip import Clip


class NewcomerAwareClip(Clip):
    """A client's first updates are shortened to an upper quantile of the others' lengths, its later ones to ``quantile``.

    Both bounds follow the lengths of those who have taken part at least ``first`` times, as in :class:`Clip`. A client that
    leaves is new when it returns, so leaving is a way to send long updates again.
    """

    class Settings(Clip.Settings):
        name: str = "newcomer_aware_clip"
        bound: float = 0.1
        quantile: float = Field(0.5, gt=0, lt=1)
        upper: float = Field(0.95, gt=0, lt=1, description="quantile for the first updates")
        first: int = Field(5, ge=0, description="number of updates of a client that count as its first")

    settings: Settings
    memory = ("seen",)

    def width(self, name: str, size: int) -> int:
        return 1

    def extra(self, size: int) -> dict[str, Tensor]:
        return {name: torch.tensor(self.settings.bound, dtype=torch.float64) for name in ("bound", "upper")}

    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        lengths, seen = torch.linalg.vector_norm(D, dim=1, keepdim=True), s.memory.seen
        new = seen < self.settings.first
        bounds = torch.where(new, float(s.extra["upper"]), float(s.extra["bound"]))
        factors = (bounds / lengths).clamp(max=1.0)
        D.mul_(factors)
        s.memory.seen = seen + 1
        return {"clip_factor": factors, "length": lengths, "new": new.to(D.dtype)}

    def finish(self, columns: dict[str, Tensor], s: Sending) -> dict[str, Tensor | float]:
        lengths = columns["length"][columns["new"] == 0].double().cpu()
        for name, wanted in (("bound", self.settings.quantile), ("upper", self.settings.upper)):
            bound = s.extra[name]
            share = (lengths <= bound).double().mean() if len(lengths) else wanted
            s.extra[name] = bound * torch.exp(-self.settings.rate * torch.as_tensor(share - wanted))
        return {"clip_factor": columns["clip_factor"], "clip_bound": float(s.extra["bound"])}
