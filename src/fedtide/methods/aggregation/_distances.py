"""Distances of rows, from differences: a Gram matrix would break ties at random, and lose close rows to rounding."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pdist

_NUMBERS = 1 << 18  # of differences at a time


def to_point(D: Tensor, z: Tensor) -> Tensor:
    """Distances [n] of the rows of ``D`` [n, d] from ``z`` [d]."""
    few = torch.split(D, max(1, _NUMBERS // D.shape[1]))
    return torch.cat([torch.linalg.vector_norm(rows - z, dim=1) for rows in few])


def squared(D: Tensor) -> Tensor:
    """Squared distances [n, n] of the rows of ``D`` [n, d] from one another."""
    found, (first, second) = D.new_zeros(len(D), len(D)), torch.triu_indices(len(D), len(D), 1, device=D.device)
    for part in torch.split(D, max(1, _NUMBERS // len(D)), dim=1):
        found[first, second] += pdist(part).square_()
    return found + found.T
