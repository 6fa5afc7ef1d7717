"""FedSpeed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch import Tensor

from fedtide.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Gradient,
    Local,
    Round,
    RunPreview,
    ServerVector,
    Tunable,
)
from fedtide.algorithms.fedsam import ascended
from fedtide.settings.choices import WeightingChoice


class DualSettings(AlgorithmSettings):
    """Settings of all algorithms whose clients keep a dual variable h_k."""

    weighting: WeightingChoice = Field("uniform", description="how participants are weighted")  # type: ignore[assignment]
    a: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="proximal coefficient a = 1 / lambda")
    rho: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="radius rho of the perturbation")
    server_form: Literal["all_clients", "participants"] = Field(
        "all_clients", description="whose mean h_k the server adds"
    )


class FedSpeed(Algorithm):
    """Prox-corrected, sharpness-aware local steps (Sun et al. 2023).

    ``v = (1 - mix) g + mix g(y + rho g / |g|) + a (y - x + h_k)``, where the part ``a y`` joins the weight decay, outside the
    clip. ``h_k = -ghat_k / a`` is the paper's prox-correction in displacement units, ``h_k+ = h_k + y_k - x``. The server of
    the authors' program adds the mean h of all clients, ``x+ = mean y_k + mean_K h_k``; the paper's is ``mean (y_k + h_k)``
    over the participants. The paper's perturbation is rho g, not normalised. ``mix = 0`` or ``rho = 0`` is FedDyn.
    """

    class Settings(DualSettings):
        """Settings of FedSpeed."""

        name: str = "fedspeed"
        mix: float = Field(1.0, ge=0, le=1, description="share of the perturbed gradient")

    settings: Settings

    server: Sequence[str | ServerVector] = (ServerVector("h_mean", mean_of="h"),)
    client: Sequence[str] = ("h",)
    models = ("cloud", "participants")

    def local(self, r: Round) -> Local:
        """a (h_k - x) inside the clip and a y outside."""
        a = self.settings.a
        return Local(linear=a * (r.client.h - r.w), decay=a) if a else Local()

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor:
        """(1 - mix) g + mix g(y + rho g / |g|)."""
        mix, g = self.settings.mix, grad(W)
        if mix == 0:
            return g
        perturbed = grad(ascended(W, g, self.settings.rho))
        return perturbed if mix == 1 else perturbed.mul_(mix).add_(g, alpha=1 - mix)

    def finish(self, r: Round) -> Tensor:
        """h_k+ and x+."""
        moved = r.W - r.w
        r.client.h += moved
        r.server.h_mean += r.total(moved) / r.population
        if self.settings.server_form == "participants":
            return r.mean(r.W + r.client.h)
        return r.mean(r.W) + r.server.h_mean

    def advice(self, run: RunPreview) -> list[str]:
        """The stability bound of the explicit proximal step."""
        return run.stiff("a", self.settings.a)
