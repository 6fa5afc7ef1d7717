"""Random rounding of every number (Alistarh et al. 2017)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import Tunable
from fedtide.methods.algorithms.base import RunPreview
from fedtide.methods.uplink._compress import ByNorm, NormSettings
from fedtide.methods.uplink.base import Draws, Link
from fedtide.training.engine.flat import Layout


class Qsgd(ByNorm):
    """Every number is rounded at random to one of s levels of the update's norm; right on average (QSGD).

    ``Q(v)_j = |v| sign(v_j) floor(s |v_j| / |v| + u_j) / s`` with u uniform, so that ``E|Q(v) - v|^2`` is at most
    ``min(d / s^2, sqrt(d) / s) |v|^2``; 32 + d (1 + ceil(log2(s + 1))) bits.
    """

    class Settings(NormSettings):
        name: str = "qsgd"
        levels: int | None = Tunable(15, low=1, high=255, ge=1, description="levels s; null: no rounding")

    settings: Settings

    def bind(self, links: Sequence[Link], layout: Layout) -> None:
        super().bind(links, layout)
        if self.memory and (remedy := self.remedy(layout.size)):
            raise SettingsError(
                f"uplink qsgd: the error-feedback residual would diverge with levels = {self.settings.levels}; "
                f"{remedy}, or set error_feedback = false"
            )

    def exact(self, size: int) -> bool:
        return self.settings.levels is None

    def remedy(self, size: int) -> str:
        levels, largest = self.settings.levels, max(self.sizes(size))
        if levels is None or levels >= math.sqrt(largest):
            return ""
        return f"set levels >= {math.ceil(math.sqrt(largest))} for {largest} coordinates per norm"

    def bits(self, size: int) -> int | None:
        if self.settings.levels is None:
            return None
        return 32 * len(self.sizes(size)) + size * (1 + self.settings.levels.bit_length())

    def part(self, v: Tensor, draws: Draws) -> Tensor:
        levels, norm = self.settings.levels, torch.linalg.vector_norm(v)
        uniform = torch.from_numpy(draws().random(len(v))).to(v)
        if levels is None or not norm:
            return v.clone()
        level = torch.floor(v.abs() * (levels / norm) + uniform).clamp(max=levels)  # in float32 a draw may be 1
        sent: Tensor = torch.sign(v) * level * (norm / levels)
        return sent

    def advice(self, run: RunPreview) -> list[str]:
        levels, largest = self.settings.levels, max(self.sizes(run.size))
        if levels is None or levels >= math.sqrt(largest) / 10:
            return []
        factor = min(largest / levels**2, math.sqrt(largest) / levels)
        return [
            f"uplink qsgd with levels = {levels}: the squared error of an update is up to {factor:.1f} times its "
            f"squared norm; use levels of {math.ceil(math.sqrt(largest) / 10)} or more, or average over many clients"
        ]
