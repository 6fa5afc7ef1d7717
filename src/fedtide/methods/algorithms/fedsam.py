"""FedSAM."""

from __future__ import annotations

from torch import Tensor

from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms._sharpness import ascended
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
        """One for the perturbation, and that of the step."""
        return 2

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> GradientAt:
        """SAM's gradient."""
        return GradientAt(ascended(W, grad(W), self.settings.rho))
