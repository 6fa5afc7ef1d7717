"""FedSAM."""

import torch
from torch import Tensor

from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import Gradient, GradientAt, Round, Tunable


class FedSam(Averaging):
    """Sharpness-aware local steps (Qu et al. 2022; Caldarola et al. 2022), averaged as in FedAvg.

    ``v = g(y + rho g(y) / |g(y)|)`` on the same batch, one norm over all parameters; decay acts at y. ``rho = 0`` is FedAvg.

    References:
        Qu et al. 2022. Generalized Federated Learning via Sharpness Aware Minimization.
    """

    class Settings(AveragingSettings):
        name: str = "fedsam"
        rho: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="radius rho of the perturbation")

    settings: Settings

    admits = ("sums", "rules", "noise")

    def gradients_in(self, step: int) -> int:
        return 2

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> GradientAt:
        return GradientAt(ascended(W, grad(W), self.settings.rho))


def radius(v: Tensor, rho: float) -> Tensor:
    """The factor [c, 1] that gives every row of ``v`` [c, d] the norm rho, up to the 1e-7 added to its own norm."""
    factor: Tensor = rho / (torch.linalg.vector_norm(v, dim=-1, keepdim=True) + 1e-7)
    return factor


def ascended(W: Tensor, g: Tensor, rho: float) -> Tensor:
    """y + rho g / (|g| + 1e-7), where SAM takes its gradient; written over ``g``, so that the caches need not hold both."""
    return torch.addcmul(W, g, radius(g, rho), out=g)
