"""FedSpeed."""

from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._dual import Dual, DualSettings
from fedtide.methods.algorithms.base import Gradient, GradientAt, Round
from fedtide.methods.algorithms.fedsam import ascended


class FedSpeed(Dual):
    """Prox-corrected, sharpness-aware local steps (Sun et al. 2023).

    FedDyn with one coefficient for all clients around a mixture of gradients; its memory ``h_k = -ghat_k / a`` is the paper's
    prox-correction in displacement units::

        v = (1 - mix) g(y) + mix g(y + rho g / |g|)                                                                 (1)

    The server of the released code adds the mean h of all clients, that of the paper takes ``mean (y_k + h_k)`` over the
    participants (``server_form``). The paper's perturbation is rho g, not normalized.
    """

    class Settings(DualSettings):
        name: str = "fedspeed"
        mix: float = Field(1.0, ge=0, le=1, description="share of the perturbed gradient")

    settings: Settings

    def gradients_in(self, step: int) -> int:
        return 2 if self.settings.mix else 1

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor | GradientAt:
        """(1)."""
        mix = self.settings.mix
        if mix == 0:
            return GradientAt(W)
        g = grad(W)
        if mix == 1:
            return GradientAt(ascended(W, g, self.settings.rho))
        return grad(ascended(W, g.clone(), self.settings.rho)).mul_(mix).add_(g, alpha=1 - mix)
