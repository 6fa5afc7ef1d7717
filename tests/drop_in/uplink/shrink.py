"""A link that does something of everything."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.plugins import PluginSettings
from fedtide.methods.uplink.base import Link, Sending


class Shrink(Link):
    """Updates times ``share`` plus noise; what is lost is kept by the client and added the next time, if ``remember``."""

    class Settings(PluginSettings):
        name: str = "shrink"
        share: float = Field(0.5, description="factor")
        noise: float = Field(0.0, description="standard deviation of what is added")
        remember: bool = Field(False, description="keep what is lost")

    place = 2

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.memory = ("lost",) if settings.remember else ()

    def extra(self, size: int) -> dict[str, Tensor]:
        return {"passed": torch.zeros(size, dtype=torch.float64)}

    def bits(self, size: int) -> int:
        return 3 * size + 5

    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        wanted = D + s.memory.lost if self.memory else D.clone()
        D.copy_(self.settings.share * wanted)
        for row, part in enumerate(D):
            part += self.settings.noise * torch.from_numpy(s.generator(row).standard_normal(len(part))).to(part)
        if self.memory:
            s.memory.lost = wanted - D
        s.extra["passed"] += 1.0
        return {"norm": torch.linalg.vector_norm(D, dim=1, keepdim=True)}
