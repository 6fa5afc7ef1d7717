"""What compressors share: one update after the other, and what is lost, which clients may add to their next update."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import cache, partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.plugins import PluginSettings, Tunable
from fedtide.methods.algorithms.base import Vectors
from fedtide.methods.uplink.base import Compression, Draws, Link, Sending
from fedtide.training.engine.flat import Layout


class CompressSettings(PluginSettings):
    error_feedback: bool = Field(False, description="clients add the compression error to their next update")
    memory_decay: float = Field(1.0, ge=0, le=1, description="decay of the error-feedback residual")


class Compressor(Compression):
    """Sends ``Q(v)``, ``v = Delta + beta e``; with error feedback ``e <- v - Q(v)`` (Karimireddy et al. 2019), else ``e = 0``.

    Updates that are not finite pass as they are, so that what has diverged shows.
    """

    settings: CompressSettings

    place = 20
    layout: Layout

    def __init__(self, settings: CompressSettings) -> None:
        super().__init__(settings)
        self.memory: Sequence[str] = ("error", "last") if settings.error_feedback else ()
        self._gone = 0.0

    def bind(self, links: Sequence[Link], layout: Layout) -> None:
        self.layout = layout

    def width(self, name: str, size: int) -> int:
        """``error``: e. ``last``: the round, from 1, that it is from; 0 for none."""
        return 1 if name == "last" else size

    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        none = torch.zeros_like(D[:, :1])
        columns = {"compression_error": none.clone()}
        if self.memory:
            columns["error_norm"] = torch.linalg.vector_norm(s.memory.error, dim=1, keepdim=True)
            columns["error_age"] = torch.where(s.memory.last > 0, s.t + 1 - s.memory.last, none)
        for row, update in enumerate(D[:0] if self.exact(D.shape[1]) else D):
            v = update.add(s.memory.error[row], alpha=self.settings.memory_decay) if self.memory else update
            if not bool(torch.isfinite(v).all()):
                continue
            sent = self.compressed(v, partial(s.generator, row))
            lost = v - sent
            update.copy_(sent)
            columns["compression_error"][row] = torch.linalg.vector_norm(lost)
            if self.memory:
                s.memory.error[row], s.memory.last[row] = lost, s.t + 1
        return columns

    def finish(self, columns: dict[str, Tensor], s: Sending) -> dict[str, Tensor | float]:
        found: dict[str, Tensor | float] = {"compression_error": float(columns["compression_error"].mean())}
        if self.memory:
            found |= {"error_norm": float(columns["error_norm"].mean()), "error_lost": self._gone}
            found["error_age"] = columns["error_age"]
        self._gone = 0.0
        return found

    def forget(self, gone: Vectors) -> None:
        self._gone += float(torch.linalg.vector_norm(gone.error, dim=1).to(torch.float64).sum())


class PartSettings(CompressSettings):
    fraction: float = Tunable(
        0.05, low=0.001, high=0.5, log=True, gt=0, le=1, description="share of the parameters that is sent"
    )


class Part(Compressor):
    """Sends k of the d numbers, the others are zero; k is at least one."""

    settings: PartSettings

    def count(self, size: int) -> int:
        """k, of d numbers."""
        return max(1, math.floor(self.settings.fraction * size + 0.5))

    def exact(self, size: int) -> bool:
        return self.count(size) == size


class NormSettings(CompressSettings):
    scope: Literal["model", "tensor"] = Field(
        "model", description="scope of a norm: the whole update, or the part of each tensor of the model"
    )


class ByNorm(Compressor):
    """Sends a norm, 32 bits, and few bits for each number."""

    settings: NormSettings

    @abstractmethod
    def part(self, v: Tensor, draws: Draws) -> Tensor:
        """``Q(v)`` of numbers [m] with one norm."""

    def sizes(self, size: int) -> list[int]:
        """How many numbers of an update of ``size`` share each norm."""
        if self.settings.scope == "model":
            return [size]
        return [slot.stop - slot.start for slot in self.layout.parameters]

    def compressed(self, v: Tensor, draws: Draws) -> Tensor:
        rng = cache(draws)
        return torch.cat([self.part(numbers, rng) for numbers in torch.split(v, self.sizes(len(v)))])
