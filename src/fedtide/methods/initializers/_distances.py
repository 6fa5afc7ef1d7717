"""Distances between the updates G of two sessions (dynamic-initialization paper, section on similarity).

``global_l2`` is the paper's distance, ``layerwise_unit`` and ``inner_product`` are those of the released code: they compare
each trainable tensor separately, scaled to unit norm, without biases. A zero tensor stays zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fedtide.training.engine.flat import Layout

Distance = Callable[[Tensor, Tensor, Layout], float]  # distance between two updates [d], in float64


def global_l2(first: Tensor, second: Tensor, layout: Layout) -> float:
    """|G - H| over all parameters."""
    return float(torch.linalg.vector_norm(first.to(torch.float64) - second.to(torch.float64)))


def layerwise_unit(first: Tensor, second: Tensor, layout: Layout) -> float:
    """Mean over tensors of |G/|G| - H/|H||, between 0 and 2."""
    return _mean(float(torch.linalg.vector_norm(a - b)) for a, b in _unit_tensors(first, second, layout))


def inner_product(first: Tensor, second: Tensor, layout: Layout) -> float:
    """Minus the mean over tensors of <G/|G|, H/|H|>, between -1 and 1, so that smaller is nearer here too."""
    return -_mean(float(torch.sum(a * b)) for a, b in _unit_tensors(first, second, layout))


DISTANCES: dict[str, Distance] = {
    "global_l2": global_l2,
    "layerwise_unit": layerwise_unit,
    "inner_product": inner_product,
}


def _unit_tensors(first: Tensor, second: Tensor, layout: Layout) -> Iterator[tuple[Tensor, Tensor]]:
    for slot in layout.parameters:
        if "bias" not in slot.name:
            yield _unit(slot.view(first)), _unit(slot.view(second))


def _unit(tensor: Tensor) -> Tensor:
    values = tensor.to(torch.float64)
    norm = torch.linalg.vector_norm(values)
    return values if norm == 0 else values / norm


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
