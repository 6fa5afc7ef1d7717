"""FedWCM-X."""

from __future__ import annotations

from pydantic import Field, model_validator
from torch import Tensor

from fedtide.algorithms.base import Local, Round
from fedtide.algorithms.fedwcm import FedWcm
from fedtide.core.errors import SettingsError
from fedtide.settings.choices import WeightingChoice, choice_field


class FedWcmX(FedWcm):
    """FedWCM for clients of different sizes: rescaled learning rates and weights times sample counts.

    Client k trains with ``lr_k = lr B / B_k``, B the steps of a client of mean size and B_k its own, so that
    ``Delta+ = sum_k w'_k u_k / (lr B)`` never grows by rounded step counts. ``w'_k ~ w_k n_k / sum_j n_j``. The paper does not
    divide these by their sum, which shrinks the server step and Delta by the number of participants
    (``renormalise: false``; buffers of BatchNorm shrink too). Tiny clients get large rates; ``lr_cap`` bounds them. Equal
    sizes give FedWCM.
    """

    class Settings(FedWcm.Settings):
        name: str = "fedwcm_x"
        weighting: WeightingChoice = choice_field("samples", "what the softmax of the scores is multiplied by")
        renormalise: bool = Field(True, description="weights sum to one")
        lr_cap: float | None = Field(None, gt=0, description="largest learning rate of a client; null for none")

        @model_validator(mode="after")
        def _own_count(self) -> FedWcmX.Settings:
            if (self.momentum_norm, self.nominal_n) != ("actual", "mean"):
                raise SettingsError(
                    "momentum_norm and nominal_n have no effect in fedwcm_x, which divides by the steps of a client of mean "
                    "size; use fedwcm, or leave them out"
                )
            return self

    settings: Settings

    def lr_scale(self, r: Round) -> Tensor:
        """lr_k / lr [C, 1]."""
        scale = r.mean_steps / r.steps
        return scale if self.settings.lr_cap is None else scale.clamp(max=self.settings.lr_cap / r.lr)

    def local(self, r: Round) -> Local:
        """FedCM's step at the rate lr_k."""
        local = super().local(r)
        local.lr_scale = self.lr_scale(r)
        return local

    def step_count(self, r: Round) -> Tensor:
        """B, up to the cap and local momentum."""
        return self.lr_scale(r) * r.effective_steps

    def kappa(self, r: Round) -> Tensor:
        """One: the rescaled rates make up for the number of steps."""
        return self.lr_scale(r) * r.effective_steps / self.step_count(r)

    def weigh(self, softmax: Tensor, prior: Tensor) -> Tensor:
        """w'_k."""
        return super().weigh(softmax, prior) if self.settings.renormalise else softmax * prior

    def finish(self, r: Round) -> Tensor:
        """With the weights as printed, x moves by the weighted displacements alone."""
        x, s = super().finish(r), self.settings
        if s.renormalise or s.server_step == "gradient_units":
            return x
        printed: Tensor = r.w - s.server_lr * r.mean(r.w - r.W)
        return printed
