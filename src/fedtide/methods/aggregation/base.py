"""What an aggregation rule is: how updates become one."""

import math
from abc import abstractmethod
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.discovery.faults import broken_contract
from fedtide.core.plugins import Plugin, PluginSettings
from fedtide.training.engine import contract
from fedtide.training.engine.flat import weighted_sum

NUMBERS = 1 << 18
"""Of differences of rows at a time."""

_COMBINATIONS = 2
"""Most combinations of a round that go on from those of the round before; no algorithm has more."""


class RuleSettings(PluginSettings):
    """Settings every rule has."""

    bucket: int | None = Field(
        None,
        ge=1,
        description="participants per bucket, resampled every round and replaced by their mean; null: no bucketing",
    )


class Combined(NamedTuple):
    """One ``update`` [d] from many; ``kept`` [C]: the share of each participant's update that counts, 0 to 1."""

    update: Tensor
    kept: Tensor


class Rule(Plugin):
    """Combines the rows behind ``r.mean``; where nothing else is set, their weighted mean.

    A rule sees updates: of models, how far they have moved from where they started.

    Attributes:
        statistics: how BatchNorm's statistics are combined: ``rule``: as updates are; ``kept``: their mean, each participant
            weighted as its update was kept; ``mean``: their weighted mean.
    """

    kind: ClassVar[str] = "aggregation"
    Settings: ClassVar[type[PluginSettings]] = RuleSettings
    statistics: ClassVar[Literal["rule", "kept", "mean"]] = "mean"

    def extra(self, like: Tensor) -> dict[str, Tensor]:
        """Initial values of tensors that the server keeps until the session ends; ``like``: an update [d]."""
        return {}

    @abstractmethod
    def combine(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        """Combine finite updates D [C, d], which must not be changed, with weights p [C] that sum to one.

        ``extra``: what the server keeps; may be changed in place.
        """

    def survives(self, count: int) -> int:
        """Most of ``count`` updates that may be anything without carrying the result wherever they want: fewer than half."""
        return max(0, count - 1) // 2

    def begin(self, like: Tensor) -> dict[str, dict[str, Tensor]]:
        """What the server keeps at a session's start for each combination of a round, the first one, the second, ..."""
        kept = {str(number): self.extra(like) for number in range(_COMBINATIONS)}
        return {name: tensors for name, tensors in kept.items() if tensors}

    def over(self, D: Tensor, p: Tensor, extra: dict[str, Tensor], draws: np.random.Generator) -> Combined:
        """Combine updates as they arrive; ``draws`` deals them to buckets.

        Those with a number that is not finite count as absent. If nothing else arrives, nothing moves.
        """
        here = D.sum(1).isfinite()
        if not here.all():  # a sum of finite numbers may overflow
            here[~here] = D[~here].isfinite().all(1)
        if here.all():
            return self._in_buckets(D, p, extra, draws)
        kept = torch.zeros_like(p)
        if not here.any():
            return Combined(torch.zeros_like(D[0]), kept)
        found = self._in_buckets(D[here], shares(p[here]), extra, draws)
        kept[here] = found.kept
        return Combined(found.update, kept)

    def withstands(self, count: int) -> int:
        """Most attackers among ``count`` participants that the rule survives, one in each bucket."""
        return self.survives(math.ceil(count / (self.settings.bucket or 1)))

    def _in_buckets(self, D: Tensor, p: Tensor, extra: dict[str, Tensor], draws: np.random.Generator) -> Combined:
        """Bucketing (Karimireddy, He and Jaggi 2022): the rule of the buckets' means, whose weights add up."""
        size = self.settings.bucket
        if size is None:
            return self._combined(D, p, extra)
        buckets = torch.split(torch.from_numpy(draws.permutation(len(D))).to(D.device), size)
        means = torch.stack([weighted_sum(shares(p[rows]), D[rows]) for rows in buckets])
        found = self._combined(means, torch.stack([p[rows].sum() for rows in buckets]), extra)
        kept = torch.empty_like(p)
        for rows, share in zip(buckets, found.kept, strict=True):
            kept[rows] = share
        return Combined(found.update, kept)

    def _combined(self, D: Tensor, p: Tensor, extra: dict[str, Tensor]) -> Combined:
        found = self.combine(D, p, extra)
        if not isinstance(found, Combined):
            raise broken_contract(self, "combine", f"Combined, got {type(found).__name__}")
        contract.tensor(self, "combine", found.update, D, tuple(D.shape[1:]))
        contract.tensor(self, "combine", found.kept, p, tuple(p.shape))
        return found


def shares(p: Tensor) -> Tensor:
    """Weights [n], scaled to sum to one; equal ones if none is above zero."""
    total = p.sum()
    return p / total if total > 0 else torch.full_like(p, 1 / len(p))


def to_point(D: Tensor, z: Tensor) -> Tensor:
    """Distances [n] of the rows of ``D`` [n, d] from ``z`` [d]."""
    few = torch.split(D, max(1, NUMBERS // D.shape[1]))
    return torch.cat([torch.linalg.vector_norm(rows - z, dim=1) for rows in few])
