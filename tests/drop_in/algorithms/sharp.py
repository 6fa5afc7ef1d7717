"""Gradients at perturbed points, with a memory written in the steps."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Gradient, Local, Round


class Sharp(Algorithm):
    """Sharpness-aware direction plus a client memory that every local step updates."""

    class Settings(AlgorithmSettings):
        """Settings of the test's algorithm."""

        name: str = "sharp"

    client = ("trail",)

    def local(self, r: Round) -> Local:
        """A pull as well: what is added comes on top of the direction."""
        return Local(pull=0.1, toward=r.w)

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor:
        """g(W + 0.1 unit(g)) + 0.1 trail, trail <- trail / 2 + g."""
        g = grad(W)
        r.client.trail = 0.5 * r.client.trail + g
        norm = torch.linalg.vector_norm(g, dim=-1, keepdim=True)
        return grad(W + 0.1 * g / (norm + 1e-7)) + 0.1 * r.client.trail
