"""The signs of an update (Bernstein et al. 2018, Karimireddy et al. 2019)."""

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.uplink._compress import ByNorm, NormSettings
from fedtide.methods.uplink.base import Draws


class Sign(ByNorm):
    """The sign of every number is sent, and the mean of their absolute values; zero counts as positive.

    ``|Q(v) - v|^2 = |v|_2^2 - |v|_1^2 / d``; d + 32 bits, d with a given magnitude.
    """

    class Settings(NormSettings):
        name: str = "sign"
        error_feedback: bool = Field(True, description="clients add the compression error to their next update")
        magnitude: float | None = Field(None, gt=0, description="absolute value of every entry; null: their mean")

    settings: Settings

    def exact(self, size: int) -> bool:
        return False

    def remedy(self, size: int) -> str:
        return "" if self.settings.magnitude is None else "remove magnitude"

    def bits(self, size: int) -> int:
        return size + (32 * len(self.sizes(size)) if self.settings.magnitude is None else 0)

    def part(self, v: Tensor, draws: Draws) -> Tensor:
        given = self.settings.magnitude
        magnitude = v.abs().mean() if given is None else torch.full_like(v[0], given)
        return torch.where(v < 0, -magnitude, magnitude)
