"""MoFedSAM."""

from torch import Tensor

from fedtide.methods.algorithms.base import Gradient, GradientAt, Round, Tunable
from fedtide.methods.algorithms.fedcm import FedCm
from fedtide.methods.algorithms.fedsam import ascended


class MoFedSam(FedCm):
    """FedSAM with client-level momentum (Qu et al. 2022): FedCM on sharpness-aware gradients.

    FedCM's (1) is ``v = alpha g(y + rho g(y) / |g(y)|) + (1 - alpha) Delta``. ``alpha = 1`` is FedSAM; ``rho = 0`` is FedCM,
    with the same instability under the nominal step count.

    References:
        Qu et al. 2022. Generalized Federated Learning via Sharpness Aware Minimization.
    """

    class Settings(FedCm.Settings):
        name: str = "mofedsam"
        rho: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="radius rho of the perturbation")

    settings: Settings

    def gradients_in(self, step: int) -> int:
        return 2

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> GradientAt:
        return GradientAt(ascended(W, grad(W), self.settings.rho))
