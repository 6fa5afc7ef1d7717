"""From distances to weights, and from weights to a model; the pilot model is a weighted mean, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Model = tuple[Tensor, Tensor]  # parameters [d] and floating buffers [q]; integer buffers (batch counters) are not mixed
_TIE = 1e-12  # relative difference below which two distances are equal under an infinite scale


def similarity_weights(distances: Sequence[float], scale: float) -> list[float]:
    """mu_z = exp(-R d_z) / sum_z' exp(-R d_z'), in float64 and without overflow; a ValueError unless all distances are finite.

    An infinite scale R gives all weight to the nearest (ties share it equally); R = 0 gives equal weights.
    """
    if not all(map(math.isfinite, distances)):
        raise ValueError("distances should be finite")
    nearest = min(distances)
    if math.isinf(scale):
        parts = [float(d - nearest <= _TIE * max(1.0, abs(nearest))) for d in distances]
    else:
        parts = [math.exp(-scale * (d - nearest)) for d in distances]
    total = math.fsum(parts)
    return [part / total for part in parts]


def mix(weights: Sequence[float], models: Sequence[Model]) -> Model:
    """Weighted sum of parameters and buffers, in float64; all weight on one model gives that model to the bit."""
    used = [(weight, model) for weight, model in zip(weights, models, strict=True) if weight > 0]
    if len(used) == 1 and used[0][0] == 1:  # a sum would lose the sign of a zero
        return used[0][1]

    def mean(part: int) -> Tensor:
        total = sum(weight * model[part].to(torch.float64) for weight, model in used)
        return torch.as_tensor(total).to(models[0][part].dtype)

    return mean(0), mean(1)


def pilot_weights(count: int, mode: Literal["average", "ema"], decay: float) -> list[float]:
    """Weights of the pilot sessions' models, oldest first.

    ``average``: equal. ``ema``: m <- decay m + (1 - decay) w, starting from the oldest model: decay^(P-1) for the oldest and
    (1 - decay) decay^(P-1-i) for the i-th after it.
    """
    if mode == "average":
        return [1 / count] * count
    return [(1 - decay if i else 1.0) * decay ** (count - 1 - i) for i in range(count)]
