"""The perturbations of sharpness-aware methods."""

from __future__ import annotations

import torch
from torch import Tensor


def radius(v: Tensor, rho: float) -> Tensor:
    """The factor [c, 1] that gives every row of ``v`` [c, d] the norm rho, up to the 1e-7 added to its own norm."""
    factor: Tensor = rho / (torch.linalg.vector_norm(v, dim=-1, keepdim=True) + 1e-7)
    return factor


def ascended(W: Tensor, g: Tensor, rho: float) -> Tensor:
    """y + rho g / (|g| + 1e-7), where SAM takes its gradient; written over ``g``, so that the caches need not hold both."""
    return torch.addcmul(W, g, radius(g, rho), out=g)
