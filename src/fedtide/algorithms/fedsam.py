"""FedSAM."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, AlgorithmSettings, Gradient, Round, Tunable


def radius(v: Tensor, rho: float) -> Tensor:
    """The factor [c, 1] that gives every row of ``v`` [c, d] the norm rho, up to the 1e-7 added to its own norm."""
    factor: Tensor = rho / (torch.linalg.vector_norm(v, dim=-1, keepdim=True) + 1e-7)
    return factor


def ascended(W: Tensor, g: Tensor, rho: float) -> Tensor:
    """y + rho g / (|g| + 1e-7), the point SAM takes its gradient at."""
    return torch.addcmul(W, g, radius(g, rho))


class FedSam(Algorithm):
    """Sharpness-aware local steps (Qu et al. 2022; Caldarola et al. 2022), averaged as FedAvg.

    ``v = g(y + rho g(y) / |g(y)|)`` on the same batch, one norm over all parameters; decay acts at y. ``rho = 0`` is FedAvg.
    """

    class Settings(AlgorithmSettings):
        """Settings of FedSAM."""

        name: str = "fedsam"
        rho: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="radius rho of the perturbation")
        server_lr: float = Tunable(1.0, low=0.1, high=1.5, gt=0, description="server step size eta_g")

    settings: Settings

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor:
        """SAM's gradient."""
        return grad(ascended(W, grad(W), self.settings.rho))

    def finish(self, r: Round) -> Tensor:
        """x+ = x + eta_g sum p_k (y_k - x)."""
        return r.average(self.settings.server_lr)
