"""The largest numbers of an update (Aji and Heafield 2017)."""

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.uplink._compress import Part, PartSettings
from fedtide.methods.uplink.base import Draws


class TopK(Part):
    """The k numbers of an update that are largest in absolute value are sent; of equal ones those that come first.

    ``|Q(v) - v|^2 <= (1 - k / d) |v|^2``; min(32 d, d + 32 k, k (32 + ceil(log2 d))) bits.
    """

    class Settings(PartSettings):
        name: str = "top_k"
        error_feedback: bool = Field(True, description="clients add the compression error to their next update")

    settings: Settings

    def bits(self, size: int) -> int:
        k = self.count(size)
        return min(32 * size, size + 32 * k, k * (32 + (size - 1).bit_length()))

    def compressed(self, v: Tensor, draws: Draws) -> Tensor:
        sizes, k = v.abs(), self.count(len(v))
        smallest = torch.topk(sizes, k, sorted=False).values.min()
        kept = sizes > smallest
        equal = (sizes == smallest).nonzero()[:, 0]
        kept[equal[: k - int(kept.sum())]] = True
        return torch.where(kept, v, torch.zeros_like(v))
