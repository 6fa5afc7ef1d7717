"""FedWCM-X."""

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.algorithms.base import Local, Round
from fedtide.methods.algorithms.fedwcm import FedWcm
from fedtide.settings.choices import WeightingChoice, choice_field


class FedWcmX(FedWcm):
    """FedWCM for clients of different sizes: rescaled learning rates, and weights times sample counts (Li et al.).

    With B_k the local steps of client k and B those of a client of mean size::

        lr_k = lr B / B_k                                                                                           (1)
        w'_k = w_k n_k / sum_j n_j, then divided by their sum                                                       (2)
        Delta+ = sum_k w'_k u_k / (lr B),   x+ = x - eta_g sum_k w'_k u_k                                           (3)

    The paper does not divide the weights by their sum, which shrinks the server step and Delta by the number of participants
    (``renormalize: false``; BatchNorm's statistics shrink too). Tiny clients get large rates; ``lr_cap`` bounds them.

    References:
        Li et al. FedWCM: Unleashing the Potential of Momentum-based Federated Learning in Long-Tailed Scenarios.
    """

    class Settings(FedWcm.Settings):
        name: str = "fedwcm_x"
        weighting: WeightingChoice = choice_field("samples", "what the softmax of the scores is multiplied by")
        renormalize: bool = Field(True, description="weights sum to one")
        lr_cap: float | None = Field(None, gt=0, description="largest learning rate of a client; null for none")

        @model_validator(mode="after")
        def _own_count(self) -> Self:
            if (self.momentum_norm, self.nominal_n) != ("actual", "mean"):
                raise SettingsError(
                    "momentum_norm and nominal_n have no effect in fedwcm_x, which divides by the steps of a client "
                    "of mean size; use fedwcm, or remove them"
                )
            return self

    settings: Settings

    def lr_scale(self, r: Round) -> Tensor:
        """lr_k / lr [C, 1]: (1)."""
        scale = r.mean_steps / r.steps
        return scale if self.settings.lr_cap is None else scale.clamp(max=self.settings.lr_cap / r.lr)

    def local(self, r: Round) -> Local:
        local = super().local(r)
        local.lr_scale = self.lr_scale(r)
        return local

    def weigh(self, w: Tensor, prior: Tensor) -> Tensor:
        """w'_k: (2); the weighting is n_k / sum_j n_j."""
        return super().weigh(w, prior) if self.settings.renormalize else w * prior

    def step_count(self, r: Round) -> Tensor:
        """B of (3), but for the cap and local momentum."""
        return self.lr_scale(r) * r.effective_steps

    def finish(self, r: Round) -> Tensor:
        """(3); where the weights do not sum to one, displacements alone move x."""
        x, s = super().finish(r), self.settings
        if s.renormalize or s.server_step == "gradient_units":
            return x
        published: Tensor = r.w - s.server_lr * r.mean(r.w - r.W)
        return published

    def kappa(self, r: Round) -> Tensor:
        """One: the rescaled rates make up for the number of steps."""
        return torch.ones_like(r.weights)
